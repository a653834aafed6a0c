//! A damaged plan: whatever it says, the checker ends. The sister in `cargo test` is
//! `crates/kernel/emit/tests/made.rs`.
#![no_main]

use std::sync::LazyLock;

use fettle_kernel_check::refusals;
use fettle_kernel_image::Image;
use fettle_kernel_image::made::{FENTRY_EXAMPLE, Made};
use libfuzzer_sys::fuzz_target;

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    let mut made = Made::default();
    made.function("first", &FENTRY_EXAMPLE);
    made.files().image().expect("it is whole")
});

fuzz_target!(|data: &[u8]| {
    if let Ok(plan) = postcard::from_bytes(data) {
        let _ = refusals(&IMAGE, &plan);
    }
});
