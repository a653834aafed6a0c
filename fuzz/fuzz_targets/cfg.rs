//! Whatever code, tables and unwind entries an image has: lifting, planning, checking and linking
//! end, and end well.
#![no_main]

use fettle_code::{Mode, Probing};
use fettle_image::{Image, LinkAddr};
use fettle_rewrite::{LinkParameters, PlanOptions, link, plan};
use fettle_types::{FunctionIndex, LoadBias};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, file)) = data.split_last() else { return };
    let Ok(image) = Image::parse(file.to_vec()) else { return };
    let lifted = fettle_lift::lift(&image);
    let mode = Mode::ALL[*choice as usize % Mode::ALL.len()];
    let options = PlanOptions { osr_map: true, ..PlanOptions::new(Probing::new(mode)) };
    let plan = plan(&image, &lifted, options);
    let parameters = LinkParameters {
        text_at: LinkAddr(0x1000_0000),
        load_bias: LoadBias::NONE,
        first_function: FunctionIndex(0),
        accumulators: 0x100_0000,
        counters: 0x200_0000,
        ring_bytes: 1 << 20,
    };
    let _ = link(&plan, &image, parameters);
});
