//! A profile from bytes: it is refused in words, or gives counts that some order can be made of.
//! The sister in `cargo test` is `crates/tune/tune/tests/fuzz_one_second.rs`.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use fettle_image::Image;
use fettle_lift::Lifted;
use fettle_place::model::Geometry;
use fettle_tune::{Group, Saved, Subject, decide};
use libfuzzer_sys::fuzz_target;

static TRUE: LazyLock<(Image, Lifted)> = LazyLock::new(|| {
    let image = Image::parse(std::fs::read("/bin/true").expect("a program")).expect("an image");
    let lifted = fettle_lift::lift(&image);
    (image, lifted)
});

fuzz_target!(|data: &[u8]| {
    let saved = match Saved::parse(data) {
        Ok(saved) => saved,
        Err(why) => return assert!(!why.is_empty()),
    };
    let (image, lifted) = &*TRUE;
    let subject = Subject { path: Path::new("/bin/true"), image, functions: &lifted.functions };
    if let Ok((counts, _)) = saved.counts(&[subject]) {
        let group = Group::default();
        let _ = decide::decide((image, subject.functions), &counts[0], &group, Geometry::L1I);
    }
});
