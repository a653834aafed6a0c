//! What measurements amount to, beside what is asked.

use super::reading::Measurement;

/// Instructions that a forwarded call may take, of both sides together.
const FORWARDED_MOST: f64 = 1100.0;
/// A call that is answered on the spot, against Linux's.
const LOCAL_MOST: f64 = 1.3;
/// Handing over by a futex, and the first touch of a page, against Linux's.
const OPERATION_MOST: f64 = 1.5;
/// Least speed of a parallel program against Linux's on as many processors.
const SPEED_LEAST: f64 = 0.95;
/// The same for many programs at once.
const MIXTURE_LEAST: f64 = 0.9;

/// What is measured on several processors, in this order: the parallel programs, and all at once.
pub const PROGRAMS: [&str; 4] = ["radix", "fft", "lu", "multi"];

/// Parallel programs, measured on each number of processors of each kind.
#[derive(Debug)]
pub struct Speeds(pub Vec<Measurement>);

impl Speeds {
    /// Virtual time of a program, instructions.
    pub fn ticks(&self, system: &str, processors: u32, what: &str) -> Option<f64> {
        let one = self
            .0
            .iter()
            .find(|one| one.system == system && one.processors == processors && one.what == what)?;
        Some(one.ticks as f64)
    }

    /// Speed-up against one of Linux's processors.
    pub fn speed_up(&self, system: &str, processors: u32, what: &str) -> Option<f64> {
        Some(self.ticks("linux", 1, what)? / self.ticks(system, processors, what)?)
    }

    /// The greatest number of processors.
    pub fn most(&self) -> u32 {
        self.0.iter().map(|one| one.processors).max().unwrap_or(0)
    }
}

fn find<'a>(measured: &'a [Measurement], system: &str, what: &str) -> Option<&'a Measurement> {
    measured.iter().find(|one| one.system == system && one.what == what)
}

fn verdict(right: bool) -> &'static str {
    if right { "" } else { "  missed" }
}

/// Prints what single operations take; false if one takes too much.
pub fn costs(measured: &[Measurement]) -> bool {
    let mut right = true;
    println!("instructions an operation: of both sides without waiting, and in virtual time");
    println!(
        "{:<12}{:>10}{:>10}{:>8}{:>12}{:>12}",
        "", "Linux", "lent", "ratio", "time Linux", "time lent"
    );
    for what in ["forwarded", "local", "futex", "touch", "scatter"] {
        let (Some(here), Some(there)) =
            (find(measured, "linux", what), find(measured, "lent", what))
        else {
            println!("{what}: not measured");
            right = false;
            continue;
        };
        let each = |total: u64, one: &Measurement| total as f64 / one.count as f64;
        let (work, lent_work) = (each(here.work(), here), each(there.work(), there));
        let (time, lent_time) = (each(here.ticks, here), each(there.ticks, there));
        let fits = match what {
            "forwarded" => lent_work <= FORWARDED_MOST,
            "local" => lent_work / work <= LOCAL_MOST,
            "futex" => lent_time / time <= OPERATION_MOST,
            "touch" => lent_work / work <= OPERATION_MOST,
            _ => true,
        };
        right &= fits;
        println!(
            "{what:<12}{work:>10.0}{lent_work:>10.0}{:>8.2}{time:>12.0}{lent_time:>12.0}{}",
            lent_work / work,
            verdict(fits)
        );
    }
    right
}

/// Whether a program is to be measured: all are if none is named.
pub fn is_wanted(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|one| one == name)
}

/// Prints speeds of parallel programs; false if one is too slow.
pub fn speeds(speeds: &Speeds, wanted: &[String]) -> bool {
    let mut right = true;
    for program in ["find", "gcc", "gzip"] {
        if let Some(speed) = speeds.speed_up("lent", 1, program) {
            println!("{program}: {speed:.3} of its speed on one of Linux's processors");
        }
    }
    println!("speed-up against one of Linux's processors, in virtual time");
    println!("{:<12}{:>8}{:>10}{:>10}{:>8}", "", "on", "Linux", "lent", "ratio");
    for program in PROGRAMS.into_iter().filter(|name| is_wanted(wanted, name)) {
        for processors in 1..=speeds.most() {
            let here = speeds.speed_up("linux", processors, program);
            let there = speeds.speed_up("lent", processors, program);
            let (Some(here), Some(there)) = (here, there) else {
                println!("{program} on {processors}: not measured");
                right = false;
                continue;
            };
            let least = if program == "multi" { MIXTURE_LEAST } else { SPEED_LEAST };
            let fits = there / here >= least;
            right &= fits;
            println!(
                "{program:<12}{processors:>8}{here:>10.2}{there:>10.2}{:>8.3}{}",
                there / here,
                verdict(fits)
            );
        }
    }
    right
}

/// Prints what disturbed a loop; false if anything did on a lent processor.
pub fn noise(measured: &[Measurement]) -> bool {
    println!(
        "a loop of {} rounds while Linux loads filters and modules",
        measured.first().map_or(0, |one| one.count)
    );
    println!("{:<28}{:>12}{:>12}{:>14}", "", "interrupts", "in a kernel", "of user");
    let mut right = !measured.is_empty();
    for one in measured {
        let name = match one.system.as_str() {
            "isolated" => "isolcpus and nohz_full",
            "linux" => "one of Linux's",
            _ => "lent",
        };
        let counts = one.vcpus.get(one.by).copied().unwrap_or_default();
        let fits = one.system != "lent" || (counts.entries == 0 && counts.kernel == 0);
        right &= fits && counts.user > one.count;
        println!(
            "{name:<28}{:>12}{:>12}{:>14}{}",
            counts.entries,
            counts.kernel,
            counts.user,
            verdict(fits)
        );
    }
    right
}
