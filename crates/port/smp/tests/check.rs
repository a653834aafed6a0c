//! What `check` says of machines, which here are folders of files.

use std::path::Path;

use fettle_smp::check::{Machine, Verdict};

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
    std::fs::write(path, text).expect("writable");
}

fn good(root: &Path) {
    put(root, "proc/sys/kernel/osrelease", "6.1.0-56-amd64\n");
    put(root, "proc/cpuinfo", "processor : 0\nflags\t\t: fpu apic xsave fsgsbase\n");
    put(root, "sys/devices/system/cpu/online", "0-3\n");
    put(
        root,
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
        "tsc hpet acpi_pm \n",
    );
    put(root, "sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    put(
        root,
        "boot/config-6.1.0-56-amd64",
        "CONFIG_MODULES=y\nCONFIG_HOTPLUG_CPU=y\nCONFIG_MMU_NOTIFIER=y\nCONFIG_KPROBES=y\n\
         CONFIG_KALLSYMS=y\nCONFIG_TRACEPOINTS=y\nCONFIG_X86_LOCAL_APIC=y\n",
    );
    put(root, "lib/modules/6.1.0-56-amd64/build/Makefile", "");
    put(root, "var/lib/fettle/smp/6.1.0-56-amd64/fettle-smp.ko", "");
}

fn verdict(root: &Path, what: &str) -> (Verdict, String) {
    let findings = Machine::below(root).check();
    let found = findings.into_iter().find(|finding| finding.what == what).expect("looked at");
    (found.verdict, found.found)
}

#[test]
fn a_machine_that_has_everything_is_good() {
    let root = tempfile::tempdir().expect("a folder");
    good(root.path());
    for finding in Machine::below(root.path()).check() {
        assert_eq!(finding.verdict, Verdict::Good, "{finding:?}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        ("proc/cpuinfo", "flags : apic xsave\n", "processor", "fsgsbase"),
        ("sys/devices/system/cpu/online", "0\n", "processors", "none to lend"),
        (
            "sys/devices/system/clocksource/clocksource0/available_clocksource",
            "hpet\n",
            "clocks",
            "time-stamp",
        ),
        ("proc/sys/kernel/osrelease", "5.10.0-8-amd64\n", "kernel", "6.1 or later"),
        ("boot/config-6.1.0-56-amd64", "CONFIG_MODULES=y\n", "kernel options", "CONFIG_KPROBES"),
        ("sys/kernel/security/lockdown", "none [integrity]\n", "lockdown", "sign"),
    ];
    for (file, text, what, word) in cases {
        let root = tempfile::tempdir().expect("a folder");
        good(root.path());
        put(root.path(), file, text);
        let (verdict, found) = verdict(root.path(), what);
        assert_eq!(verdict, Verdict::Missing, "{what}");
        assert!(found.contains(word), "{what}: {found}");
    }
}

#[test]
fn a_folder_without_files_panics_nowhere() {
    let root = tempfile::tempdir().expect("a folder");
    assert_eq!(verdict(root.path(), "kernel").0, Verdict::Missing);
    assert_eq!(verdict(root.path(), "kernel options").0, Verdict::Limited);
}
