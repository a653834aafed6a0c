//! What lent processors cost and bring, by counted instructions in a guest.
//!
//! A guest is translated, so its times say nothing. A plugin of QEMU's (`plugin.c`) counts instructions, and lets
//! processors execute in step by them: their number is the time, as in the paper's simulator.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{self, Clock, Files, Kernel, Machine};
use crate::{proc, repo, smp};

mod figures;
mod reading;
mod scaling;

pub use figures::{PROGRAMS, Speeds};
pub use reading::Measurement;

/// How to measure.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// The command to measure; without one, it is built
    #[arg(long)]
    pub fettle: Option<PathBuf>,
    /// Package of the kernel
    #[arg(long, default_value = "linux-image-amd64")]
    pub kernel: String,
    /// Lend up to so many processors
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub processors: u32,
    /// Only these parts: costs, speeds, noise; scaling, of Linux alone, on each number of processors, is not among those of the default
    #[arg(long, value_delimiter = ',', default_value = "costs,speeds,noise")]
    pub parts: Vec<String>,
    /// Of the speeds, only those of these programs: find, gcc, gzip, radix, fft, lu, multi
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<String>,
    /// Show everything that the guest showed, and what each processor did
    #[arg(long)]
    pub verbose: bool,
}

/// Measures and prints; false if a figure is missed.
pub fn run(options: &Options) -> Result<bool> {
    let mut right = true;
    for part in &options.parts {
        right &= match part.as_str() {
            "costs" => figures::costs(&costs(options)?),
            "speeds" => figures::speeds(&speeds(options)?, &options.programs),
            "noise" => figures::noise(&noise(options)?),
            "scaling" => {
                let kernel = &options.kernel;
                let speeds = scaling(kernel, options.processors, options.verbose)?;
                scaling::print(kernel, &speeds)
            }
            other => anyhow::bail!("{other} is none of costs, speeds, noise, scaling"),
        };
    }
    Ok(right)
}

/// Measures parallel programs on 1 to `processors` processors of each kind.
pub fn speeds(options: &Options) -> Result<Speeds> {
    Ok(Speeds(Guest::new(options)?.measure(
        options.verbose,
        options.processors + 1,
        "",
        |most| speeds_script(most, &options.programs),
    )?))
}

/// Measures how a kernel of Debian's alone scales on 1 to `most` processors.
pub fn scaling(kernel: &str, most: u32, verbose: bool) -> Result<Speeds> {
    let kernel = Kernel::fetch_image(kernel)?;
    let place = repo::target_folder("smp")?;
    let files = Files::new(&place.join("scaling-files"))?;
    smp::compile(&files, "measured", "-O2")?;
    let guest = Guest { kernel, files, plugin: plugin(&place)?, counts: place.join("counts") };
    let script = |most| format!("{FUNCTIONS}{}", scaling::script(most));
    Ok(Speeds(guest.measure(verbose, most + 1, "", script)?))
}

fn plugin(place: &Path) -> Result<PathBuf> {
    let plugin = place.join("plugin.so");
    guest::plugin(&repo::root().join("xtask/src/bench/smp/plugin.c"), &plugin)?;
    Ok(plugin)
}

/// Measures single operations.
pub fn costs(options: &Options) -> Result<Vec<Measurement>> {
    Guest::new(options)?.measure(options.verbose, 3, "", |_| costs_script())
}

fn noise(options: &Options) -> Result<Vec<Measurement>> {
    // Processor 1 is as quiet as Linux makes it, 2 is lent, 3 is as usual.
    Guest::new(options)?
        .measure(options.verbose, 4, "isolcpus=1 nohz_full=1 rcu_nocbs=1", |_| noise_script())
}

/// One program on Linux's processors from 1 on, and on lent ones.
const FUNCTIONS: &str = "
linux() { echo \"label: linux $1\"; mask=$(printf %x $(((1 << ($1 + 1)) - 2))); shift; taskset $mask \"$@\" || echo failed: \"$@\"; }
lent() { echo \"label: lent $1\"; list=1-$1; shift; (echo join $how $list >/dev/fettle-smp; exec \"$@\") || echo failed: \"$@\"; }
lend() { fettle smp lend $1 --module /fettle-smp.ko; echo poll 1 >/dev/fettle-smp; }
";

fn costs_script() -> String {
    let programs = ["forwarded 2000", "local 2000", "futex 500", "touch 4000", "scatter 1000"];
    let mut script = FUNCTIONS.to_string();
    for system in ["linux", "lent"] {
        if system == "lent" {
            script.push_str("lend 1-2\n");
        }
        for program in programs {
            let processors = if program.starts_with("futex") { 2 } else { 1 };
            let _ = writeln!(script, "{system} {processors} /tests/measured/costs {program}");
        }
    }
    script
}

/// Parallel programs with their sizes: between 20 and 70 million instructions each.
const PARALLEL: [(&str, u32); 3] = [("radix", 1 << 19), ("fft", 1 << 16), ("lu", 256)];

/// Programs with one thread, as the paper has them.
const SINGLE: [(&str, &str); 3] = [
    ("find", "find /usr /lib /bin /proc/sys"),
    ("gcc", "cc1 -quiet -ffreestanding -O2 -o /tmp/sieve.s /tests/sieve.c"),
    ("gzip", "gzip -kf /tests/text"),
];

/// The paper's mixture, as a script: programs that make calls, and programs that compute, at the same time.
fn mixture() -> String {
    let mut script = String::from("#!/bin/dash\n");
    for (_, command) in SINGLE {
        let _ = writeln!(script, "{command} >/dev/null &");
    }
    script.push_str("grep -c e /usr/bin/cc1 >/dev/null &\n");
    script.push_str("find /usr /lib | grep -c data >/dev/null &\n");
    script.push_str("/tests/measured/splash fft 4 16384 part &\n");
    script.push_str("/tests/measured/splash lu 4 192 part &\nwait\n");
    script
}

fn speeds_script(most: u32, programs: &[String]) -> String {
    let is_wanted = |name: &str| figures::is_wanted(programs, name);
    let mut script = FUNCTIONS.to_string();
    script.push_str("how=mixed\n");
    for system in ["linux", "lent"] {
        if system == "lent" {
            let _ = writeln!(script, "lend 1-{most}");
        }
        for (name, command) in SINGLE.into_iter().filter(|(name, _)| is_wanted(name)) {
            let _ =
                writeln!(script, "{system} 1 /tests/measured/timed {name} {command} >/tmp/said");
            script.push_str("grep -a -E '^(label|measured|failed)' /tmp/said\n");
        }
        for processors in 1..=most {
            for (program, size) in PARALLEL.into_iter().filter(|(name, _)| is_wanted(name)) {
                let _ = writeln!(
                    script,
                    "{system} {processors} /tests/measured/splash {program} {processors} {size}"
                );
            }
            if is_wanted("multi") {
                let _ = writeln!(
                    script,
                    "{system} {processors} /tests/measured/timed multi /tests/multi"
                );
            }
        }
    }
    script
}

fn noise_script() -> String {
    let loops = 20_000_000;
    format!(
        "{FUNCTIONS}
lend 2
taskset 1 /tests/measured/disturb /disturbance.ko >/tmp/disturbs &
disturbs=$!
while ! grep -q disturbs /tmp/disturbs; do sleep 0.2; done
echo 'label: isolated 1'; taskset 2 /tests/measured/costs loop {loops}
echo 'label: linux 3'; taskset 8 /tests/measured/costs loop {loops}
echo 'label: lent 2'; (echo join 2 >/dev/fettle-smp; exec /tests/measured/costs loop {loops})
kill $disturbs; wait $disturbs
"
    )
}

/// What all guests of a benchmark have.
struct Guest {
    kernel: Kernel,
    files: Files,
    plugin: PathBuf,
    counts: PathBuf,
}

impl Guest {
    fn new(options: &Options) -> Result<Guest> {
        let kernel = Kernel::fetch(&options.kernel)?;
        let files = smp::base(options.fettle.as_deref(), &kernel, "measured-files")?;
        smp::compile(&files, "measured", "-O2")?;
        let place = repo::target_folder("smp")?;
        files.put_file(&disturbance(&kernel, &place)?, "disturbance.ko")?;
        for name in ["find", "gzip", "grep"] {
            let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
            let program = found.iter().find(|program| program.exists());
            files.put_program(program.context(name)?, &format!("usr/bin/{name}"))?;
        }
        let compiler = proc::output_of(Command::new("gcc").arg("-print-prog-name=cc1"))?;
        files.put_program(Path::new(compiler.trim()), "usr/bin/cc1")?;
        files.put_file(&repo::root().join("tests/smp/data/sieve.c"), "tests/sieve.c")?;
        files.put_file(&repo::root().join("docs/limits.md"), "tests/text")?;
        files.put_text("tests/multi", &mixture())?;
        let plugin = plugin(&place)?;
        Ok(Guest { kernel, files, plugin, counts: place.join("counts") })
    }

    fn measure(
        &self,
        verbose: bool,
        processors: u32,
        append: &str,
        script: impl Fn(u32) -> String,
    ) -> Result<Vec<Measurement>> {
        let machine = Machine {
            processors,
            clock: Clock::Host,
            // Linux clears pages by words then: by bytes each would be an instruction here.
            model: "max,-erms,-fsrm".to_string(),
            memory: 1024,
            // An idle processor looks for work, as a lent one does, and needs no interrupt.
            options: format!("idle=poll nowatchdog rcupdate.rcu_cpu_stall_suppress=1 {append}"),
            output: None,
            plugin: Some((self.plugin.clone(), format!("out={}", self.counts.display()))),
            limit: Duration::from_secs(3600),
        };
        let shown = guest::run(&self.kernel, &self.files, &machine, &script(processors - 1))?;
        if verbose {
            println!("{shown}");
        }
        ensure!(!shown.contains("failed:"), "a program failed in the guest:\n{shown}");
        let counts = std::fs::read_to_string(&self.counts).context("what the plugin counted")?;
        let measured = reading::read(&shown, &counts)?;
        if verbose {
            reading::show(&measured);
        }
        for one in measured.iter().filter(|one| one.slips > 0) {
            println!("{} {}: {} slips", one.system, one.what, one.slips);
        }
        Ok(measured)
    }
}

/// Builds the module that disturbs.
fn disturbance(kernel: &Kernel, place: &Path) -> Result<PathBuf> {
    let folder = place.join("disturbance").join(&kernel.release);
    std::fs::create_dir_all(&folder)?;
    let source = repo::root().join("tests/smp/measured/module");
    for name in ["Kbuild", "disturbance.c"] {
        std::fs::copy(source.join(name), folder.join(name))?;
    }
    proc::output_of(
        Command::new("make")
            .arg("-C")
            .arg(&kernel.headers)
            .arg(format!("M={}", folder.display()))
            .arg("modules"),
    )?;
    Ok(folder.join("disturbance.ko"))
}
