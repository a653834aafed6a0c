//! Profiles of a kernel made by hand: what was counted in one boot fits the next one, and only where functions are
//! the same.
#![allow(missing_docs)]

use fettle_image::LinkAddr;
use fettle_kernel_image::Image;
use fettle_kernel_image::made::{FENTRY_EXAMPLE, Made};
use fettle_kernel_lift::Lifter;
use fettle_kernel_tune::Profile;
use fettle_kernel_tune::profile::ByFunction;
use fettle_place::lifted::{Counts, Target};

/// The first function that runs again and again, and a shorter one.
const SHORT: [u8; 6] = [0x0f, 0x1f, 0x44, 0, 0, 0xc3];

/// A kernel of these functions, after so many bytes of others.
fn kernel(before: usize, functions: &[(&str, &[u8])]) -> Image {
    let mut made = Made::default();
    for _ in 0..before {
        made.function("before", &SHORT);
    }
    functions.iter().for_each(|(name, code)| {
        made.function(name, code);
    });
    made.files().image().unwrap()
}

/// A profile of all functions, with the blocks' places as counts.
fn profile(image: &Image) -> Profile {
    let lifter = Lifter::new(image);
    let entries: Vec<u64> = image.functions.all().iter().map(|f| f.range.start).collect();
    let (functions, _) = lifter.lift(&entries);
    let mut counts = ByFunction::default();
    for function in &functions {
        let blocks =
            function.code.blocks.iter().map(|b| (b.start, 1 + b.start.0 - function.entry()));
        let first = functions[0].code.entry;
        let targets = [((function.code.entry, Target::Here(first)), 7)];
        let (blocks, targets) = (blocks.collect(), targets.into_iter().collect());
        counts.insert(function.code.entry, Counts { blocks, targets, ..Counts::default() });
    }
    Profile::of(image, Some("looping".into()), &functions, &counts)
}

#[test]
fn another_boot_has_the_counts_where_its_functions_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.profile");
    let functions: [(&str, &[u8]); 3] =
        [("looping", &FENTRY_EXAMPLE), ("twice", &SHORT), ("twice", &FENTRY_EXAMPLE)];
    profile(&kernel(0, &functions)).write(&path).unwrap();

    let later = kernel(9, &functions);
    let read = Profile::read(&path).unwrap();
    assert_eq!(read.root.as_deref(), Some("looping"));
    let (fitting, counts, fit) = read.fit(&Lifter::new(&later)).unwrap();
    assert_eq!((fit.functions, fit.differing, fitting.len()), (3, 0, 3));
    let looping = later.function("looping").unwrap().range.start;
    for function in &fitting {
        let counts = &counts[&function.code.entry];
        for block in &function.code.blocks {
            assert_eq!(counts.blocks[&block.start], 1 + block.start.0 - function.entry());
        }
        let target = (function.code.entry, Target::Here(LinkAddr(looping)));
        assert_eq!(counts.targets[&target], 7, "{}", function.name);
    }
}

#[test]
fn functions_that_differ_are_left_out() {
    let before = kernel(0, &[("looping", &FENTRY_EXAMPLE), ("gone", &SHORT), ("other", &SHORT)]);
    let profile = profile(&before);
    let after = kernel(0, &[("looping", &FENTRY_EXAMPLE), ("other", &FENTRY_EXAMPLE)]);
    let (fitting, _, fit) = profile.fit(&Lifter::new(&after)).unwrap();
    assert_eq!((fit.functions, fit.differing), (1, 2));
    assert_eq!(fitting[0].name, "looping");

    let strange = kernel(0, &[("unknown", &SHORT)]);
    let refused = profile.fit(&Lifter::new(&strange)).unwrap_err().to_string();
    assert!(refused.contains("none of its 3 functions"), "{refused}");
}

#[test]
fn files_that_are_no_profiles_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.profile");
    for (content, why) in [
        ("{", "EOF"),
        (r#"{"version":9,"release":"6.1","root":null,"functions":[]}"#, "its version is 9"),
        ("[]", "invalid"),
    ] {
        std::fs::write(&path, content).unwrap();
        let refused = Profile::read(&path).unwrap_err().to_string();
        assert!(refused.contains("some.profile") && refused.contains(why), "{refused}");
    }
}
