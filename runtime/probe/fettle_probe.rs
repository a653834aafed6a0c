// For probes of your own in Rust: `fettle record --probe FILE.rs -- PROGRAM`. This stands before
// the file; see fettle_probe.h for what a probe may do. Both are Rust 2021, which compilers know since
// 1.56; attributes may be written as in Rust 2024 where the compiler knows that.
#![no_std]
#![allow(dead_code)]

/// The counters of one function in one thread.
#[repr(C)]
pub struct State {
    pub counter: [u64; 4],
}

/// The call that a probe stands at.
#[repr(C)]
pub struct Call {
    /// Arguments in general-purpose registers, in order; at the entry only.
    pub argument: [u64; 6],
    /// The result in the general-purpose register; when the function returns only.
    pub result: u64,
    /// Stack pointer at the entry.
    pub stack: *const u64,
    /// 0: entered, 1: returns, 2: goes on to another function.
    pub moment: u64,
}

/// Names of the counters in use, in order, as one text.
#[macro_export]
macro_rules! counters {
    ($names:literal) => {
        #[used]
        #[link_section = ".fettle_counters"]
        static COUNTERS: [u8; $names.len()] = {
            let (text, mut bytes, mut i) = ($names.as_bytes(), [0; $names.len()], 0);
            while i < bytes.len() {
                bytes[i] = text[i];
                i += 1;
            }
            bytes
        };
    };
}

#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
