//! What a comparison has found, as plain data.

use fettle_stats::Interval;
use serde::Serialize;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Of this form of data.
    pub version: u32,
    /// The machine's kernel, processor and how many of them there are.
    pub machine: String,
    /// The systems; ratios are to the first.
    pub systems: Vec<SystemInfo>,
    /// Rounds; each has two turns of every system.
    pub rounds: usize,
    /// The time of a turn, about, in nanoseconds; 0 where programs of the user's were run.
    pub turn_ns: u64,
    /// Results by load.
    pub loads: Vec<Loaded>,
    /// What could not be measured.
    pub skipped: Vec<Skipped>,
}

/// A system.
#[derive(Clone, Debug, Serialize)]
pub struct SystemInfo {
    /// As the user named it, shortened.
    pub name: String,
    /// Its version, as far as it says one.
    pub release: String,
}

/// Results at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    /// Threads that computed meanwhile, for each processor.
    pub spinners: u32,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// What a row's times are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// Of one operation.
    Operation,
    /// A program's elapsed time.
    Wall,
    /// A program's CPU time, with all that its system used for it.
    Cpu,
}

/// One kind of operation, or one time of a program, on all systems.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the times are.
    pub kind: RowKind,
    /// The operation, or the program.
    pub name: String,
    /// Rows that belong together.
    pub group: String,
    /// In one line.
    pub what: String,
    /// By system, in their order; `None` where it could not be measured.
    pub cells: Vec<Option<Cell>>,
}

/// A time on one system.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Median over the rounds, in nanoseconds.
    pub ns: f64,
    /// Median of the rounds' ratios to the first system, with its 95 % interval; not of the first itself.
    pub ratio: Option<Interval>,
    /// Each round's time, in nanoseconds.
    pub rounds_ns: Vec<f64>,
}

/// What could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// On which system.
    pub system: String,
    /// Which operation; `None`: the system did not start.
    pub name: Option<String>,
    /// Why.
    pub why: String,
}

impl Row {
    /// Makes cells of rounds: for each system, what each round has shown. Rounds that some system lacks do
    /// not exist.
    pub(crate) fn cells_of(rounds: &[Option<Vec<f64>>]) -> Vec<Option<Cell>> {
        let first = rounds.first().and_then(Option::as_ref);
        let cell = |(at, own): (usize, &Option<Vec<f64>>)| {
            let own = own.as_ref()?;
            let ratio = first
                .filter(|_| at > 0)
                .map(|first| fettle_stats::median_interval(&fettle_stats::ratios(own, first)));
            Some(Cell { ns: fettle_stats::median(own), ratio, rounds_ns: own.clone() })
        };
        rounds.iter().enumerate().map(cell).collect()
    }
}

impl Comparison {
    /// How much a load changes what a row costs on a system, over the first: the smallest and the largest
    /// ratio, where the larger is at least twice the smaller and their intervals do not meet. With the most
    /// changed first; at most one of each row and system.
    pub fn changed_by_load(&self) -> Vec<Change<'_>> {
        let mut all = Vec::new();
        let Some(first) = self.loads.first() else { return all };
        for (number, row) in first.rows.iter().enumerate() {
            for (at, system) in self.systems.iter().enumerate().skip(1) {
                let ratio = |loaded: &'_ Loaded| {
                    let cell = loaded.rows.get(number)?.cells.get(at)?.as_ref()?;
                    Some((loaded.spinners, cell.ratio?))
                };
                let ratios: Vec<(u32, Interval)> = self.loads.iter().filter_map(ratio).collect();
                let by_value =
                    |a: &&(u32, Interval), b: &&(u32, Interval)| a.1.value.total_cmp(&b.1.value);
                let (Some(least), Some(most)) =
                    (ratios.iter().min_by(by_value), ratios.iter().max_by(by_value))
                else {
                    continue;
                };
                if most.1.value >= 2.0 * least.1.value && most.1.low > least.1.high {
                    let name = row.name.as_str();
                    all.push(Change { name, system: &system.name, least: *least, most: *most });
                }
            }
        }
        all.sort_by(|a, b| b.factor().total_cmp(&a.factor()));
        all
    }
}

/// How much loads change what something costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    /// The operation.
    pub name: &'a str,
    /// The system.
    pub system: &'a str,
    /// The load with the smallest ratio, and that.
    pub least: (u32, Interval),
    /// The load with the largest.
    pub most: (u32, Interval),
}

impl Change<'_> {
    fn factor(&self) -> f64 {
        self.most.1.value / self.least.1.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_medians_of_rounds() {
        let native: Vec<f64> = (0..20).map(|n| 100.0 * (1.0 + f64::from(n % 3))).collect();
        let other: Vec<f64> = native.iter().map(|ns| ns * 7.0).collect();
        let cells = Row::cells_of(&[Some(native), Some(other), None]);
        let ratio = cells[1].as_ref().unwrap().ratio.unwrap();
        assert!((ratio.value - 7.0).abs() < 1e-9 && (ratio.high - ratio.low).abs() < 1e-9);
        assert!(cells[0].as_ref().unwrap().ratio.is_none() && cells[2].is_none());
    }

    #[test]
    fn what_a_load_changes_is_found() {
        let loaded = |spinners, factor: f64| {
            let rounds = |by: f64| Some((0..10).map(|n| by * (100.0 + f64::from(n))).collect());
            let row = |name: &str, by| Row {
                kind: RowKind::Operation,
                name: name.into(),
                group: "calls".into(),
                what: String::new(),
                cells: Row::cells_of(&[rounds(1.0), rounds(by)]),
            };
            Loaded { spinners, rows: vec![row("same", 9.0), row("null", 2.0 * factor)] }
        };
        let info = |name: &str| SystemInfo { name: name.into(), release: String::new() };
        let comparison = Comparison {
            version: 1,
            machine: String::new(),
            systems: vec![info("native"), info("gvisor:systrap")],
            rounds: 10,
            turn_ns: 1,
            loads: vec![loaded(0, 1.0), loaded(1, 40.0)],
            skipped: Vec::new(),
        };
        let changed = comparison.changed_by_load();
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert_eq!((changed[0].name, changed[0].most.0), ("null", 1));
    }
}
