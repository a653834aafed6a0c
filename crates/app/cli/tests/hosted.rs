//! Recordings inside other systems' kernels: gVisor, and User-Mode Linux.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[allow(dead_code)]
mod common;

const PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int work(int x)
{
    volatile int y = x;
    for (int i = 0; i < 3; i++)
        y += i;
    return y;
}
int main(void)
{
    int sum = 0;
    for (int i = 0; i < 10000; i++)
        sum += work(i);
    printf("%d\n", sum);
    return 3;
}
"#;

const SENSOR: &str = r#"
#include "fettle.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
FETTLE_LIST(events, "hosted.events", 1, 0, FETTLE_DROP);
int main(void)
{
    for (int i = 0; i < 1000; i++)
        FETTLE_COMMIT(events, 1, i);
    if (!fork()) {
        for (int i = 0; i < 500; i++)
            FETTLE_COMMIT(events, 2, i);
        _exit(0);
    }
    wait(0);
    printf("done\n");
    return 0;
}
"#;

/// A folder with `fettle`, stripped, and a compiled program.
fn bench(name: &str) -> PathBuf {
    let folder = common::folder(name);
    let strip = Command::new("strip")
        .arg("-o")
        .args([&folder.join("fettle"), Path::new(env!("CARGO_BIN_EXE_fettle"))])
        .status();
    assert!(strip.unwrap().success());
    compile(&folder, "program", PROGRAM);
    folder
}

fn compile(folder: &Path, name: &str, text: &str) {
    let source = folder.join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../runtime/sensor");
    let compiled = Command::new("gcc")
        .args(["-O1", "-I"])
        .arg(include)
        .arg("-o")
        .arg(folder.join(name))
        .arg(&source)
        .status();
    assert!(compiled.unwrap().success());
}

/// Runs a shell script inside gVisor; `None` where there is none.
fn in_gvisor(folder: &Path, script: &str) -> Option<Output> {
    let run = |script: &str| {
        Command::new("timeout")
            .args(["120", "runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups", "do"])
            .args(["sh", "-c", &format!("cd {}; {script}", folder.display())])
            .output()
    };
    let works = run("echo it works").is_ok_and(|out| out.stdout.starts_with(b"it works"));
    if !works {
        eprintln!("skipped 1 test: gVisor does not run here (apt-get install runsc, as root)");
        return None;
    }
    run(script).ok()
}

#[test]
fn all_of_a_recording_is_there_inside_gvisor() {
    let folder = bench("in-gvisor");
    let script = "export XDG_CACHE_HOME=/tmp/c
        for mode in count time events edges; do
            ./fettle record --mode $mode -o /tmp/$mode.fettle -- ./program > out 2> said
            echo \"$mode ends with $?, $(cat out)\"; cat said
            ./fettle trace check /tmp/$mode.fettle || ./fettle trace check /tmp/$mode.fettle >&2
        done";
    let Some(output) = in_gvisor(&folder, script) else { return };
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for mode in ["count", "time", "events", "edges"] {
        assert!(said.contains(&format!("{mode} ends with 3, 50025000")), "{said}{wrong}");
    }
    assert_eq!(said.matches("functions probed").count(), 4, "{said}{wrong}");
    assert_eq!(said.matches("1000").count(), 3, "calls of three modes: {said}{wrong}");
}

#[test]
fn what_gvisor_lacks_for_instrumented_files_is_said() {
    let folder = bench("gvisor-instrumented");
    let made = common::fettle(&[
        "instrument",
        common::text(&folder.join("program")),
        "-o",
        common::text(&folder.join("program.i")),
    ]);
    assert!(made.status.success());
    let script = "FETTLE_RECORD=/tmp/i.fettle ./program.i 2>&1";
    let Some(output) = in_gvisor(&folder, script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no gs base") && said.contains("50025000"), "{said}");
}

#[test]
fn sensors_work_where_the_kernel_wipes_no_memory() {
    let folder = bench("gvisor-sensors");
    compile(&folder, "sensor", SENSOR);
    let script = "mkdir -m 700 /tmp/sensors; export FETTLE_SENSORS=/tmp/sensors
        ./sensor; ./fettle sensors read hosted.events > events; wc -l < events; cut -d' ' -f1-6 events | tail -2";
    let Some(output) = in_gvisor(&folder, script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("done"), "{said}{wrong}");
    // The parent's events, and the child's in memory of its own.
    assert!(said.contains("1500"), "{said}{wrong}");
}

#[test]
fn all_of_a_recording_is_there_inside_user_mode_linux() {
    let folder = bench("in-uml");
    let Some(kernel) =
        ["/usr/bin/linux.uml", "/usr/bin/linux"].iter().find(|path| Path::new(path).exists())
    else {
        return eprintln!("skipped 1 test: no User-Mode Linux (apt-get install user-mode-linux)");
    };
    let init = folder.join("init");
    let script = format!(
        "#!/bin/sh
        mount -t proc proc /proc; mount -t tmpfs tmpfs /mnt
        export XDG_CACHE_HOME=/mnt/c PATH=/usr/bin:/bin:/usr/sbin:/sbin
        cd {}
        ./fettle record --mode count -o /mnt/a.fettle -- ./program 2>&1
        echo \"ends with $?\"
        ./fettle trace check /mnt/a.fettle 2>&1
        echo o > /proc/sysrq-trigger; sleep 10
        ",
        folder.display()
    );
    std::fs::write(&init, script).unwrap();
    let _ = Command::new("chmod").arg("+x").arg(&init).status();
    let output = Command::new("timeout")
        .args(["120", kernel, "mem=768M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
        .args(["con=null", "con0=null,fd:1", &format!("init={}", init.display())])
        .env("TMPDIR", &folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if !said.contains("ends with") {
        return eprintln!("skipped 1 test: User-Mode Linux does not start here: {said}");
    }
    assert!(said.contains("50025000") && said.contains("ends with 3"), "{said}");
    assert!(said.contains("10008 calls") && said.contains("9 of 9 functions probed"), "{said}");
}
