//! A damaged kernel: whatever its memory, symbols and types say, reading, lifting, emission and checking
//! end. Each four bytes say where one byte of which file changes to what. The sister in `cargo test` is
//! `crates/kernel/emit/tests/made.rs`.
#![no_main]

use std::sync::LazyLock;

use fettle_kernel_check::refusals;
use fettle_kernel_emit::{Counting, Order, emit};
use fettle_kernel_image::made::{FENTRY_EXAMPLE, Files, Made};
use fettle_kernel_lift::Lifter;
use libfuzzer_sys::fuzz_target;

static WHOLE: LazyLock<Files> = LazyLock::new(|| {
    let mut made = Made::default();
    for name in ["first", "second"] {
        made.function(name, &FENTRY_EXAMPLE);
    }
    made.files()
});

fuzz_target!(|data: &[u8]| {
    let mut files = WHOLE.clone();
    let mut text = std::mem::take(&mut files.kallsyms).into_bytes();
    for change in data.chunks_exact(4) {
        let file = match change[0] % 4 {
            0 => &mut text,
            1 => &mut files.btf,
            _ => &mut files.core,
        };
        // Tables lie at the end, text at the begin.
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % 1024.min(file.len());
        let at = if change[0] & 4 == 0 { at } else { file.len() - 1 - at };
        file[at] = change[3];
    }
    files.kallsyms = String::from_utf8_lossy(&text).into_owned();
    let Ok(image) = files.image() else { return };
    let lifter = Lifter::new(&image);
    let (functions, _) = lifter.lift(&lifter.traceable());
    let emission = emit(&lifter, &functions, &Order::Shuffled(1), Counting::Blocks);
    let _ = refusals(&image, &emission.plan);
});
