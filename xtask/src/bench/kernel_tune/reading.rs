//! Reads what a guest and its plugin have written.

use anyhow::{Context, Result, ensure};

/// What the plugin counted between two marks, of the kernel alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions.
    pub kernel: u64,
    /// Blocks that did not begin where the one before ended.
    pub jumps: u64,
    /// What a cache of 32 KiB with 8 ways missed.
    pub misses: u64,
    /// What one of 16 KiB with 4 ways missed.
    pub small: u64,
}

/// A load's three measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// What the command that tuned said of it.
    pub said: String,
    /// By the kernel as it was.
    pub before: Counts,
    /// With rewritten text.
    pub installed: Counts,
    /// When that was taken out.
    pub after: Counts,
}

/// Pairs of a name and a number.
fn counts(line: &str) -> Result<Counts> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let field = |name: &str| -> Result<u64> {
        let pair = words.chunks(2).find(|pair| pair[0] == name);
        let number = pair.and_then(|pair| pair.get(1)).and_then(|number| number.parse().ok());
        number.with_context(|| format!("no number of {name} in {line:?}"))
    };
    Ok(Counts {
        kernel: field("kernel")?,
        jumps: field("jumps")?,
        misses: field("misses")?,
        small: field("small")?,
    })
}

/// The plugin's lines, named as the guest's console does, in the same order.
pub fn read(shown: &str, counted: &str) -> Result<Vec<Load>> {
    let mut counted = counted.lines();
    let mut loads: Vec<Load> = Vec::new();
    for line in shown.lines() {
        if let Some(said) = line.strip_prefix("tuned: ") {
            let load = loads.last_mut().context("something was tuned for no load")?;
            load.said = said.to_string();
            ensure!(said.starts_with("0 "), "{} was not tuned: {said}\n{shown}", load.name);
        }
        let Some((name, when)) = line.strip_prefix("load: ").and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let counts = counts(counted.next().context("the guest measured more than the plugin")?)?;
        if when == "before" {
            loads.push(Load { name: name.to_string(), ..Load::default() });
        }
        let load = loads.last_mut().filter(|load| load.name == name);
        let load = load.with_context(|| format!("{line:?} comes without its beginning"))?;
        match when {
            "before" => load.before = counts,
            "installed" => load.installed = counts,
            _ => load.after = counts,
        }
    }
    ensure!(counted.next().is_none(), "the plugin measured more than the guest:\n{shown}");
    Ok(loads)
}

/// Executions of addresses, from the plugin's blocks.
#[derive(Debug, Default)]
pub struct Executed {
    /// Begin, end, how often, by begin.
    blocks: Vec<(u64, u64, u64)>,
    longest: u64,
}

impl Executed {
    /// Reads the plugin's file.
    pub fn read(text: &str) -> Result<Executed> {
        let mut blocks = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let mut word = || words.next().with_context(|| format!("{line:?} is cut off"));
            let (from, to) = (word()?, word()?);
            let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
            blocks.push((from, to, word()?.parse()?));
        }
        blocks.sort_unstable();
        cut(&mut blocks);
        let longest = blocks.iter().map(|(from, to, _)| to - from).max().unwrap_or(0);
        Ok(Executed { blocks, longest })
    }

    /// How often the instruction at `address` was executed.
    pub fn of(&self, address: u64) -> u64 {
        let behind = self.blocks.partition_point(|(from, ..)| *from <= address);
        let near = self.blocks[..behind].iter().rev();
        near.take_while(|(from, ..)| address - from < self.longest)
            .filter(|(_, to, _)| address < *to)
            .map(|(.., count)| count)
            .sum()
    }
}

/// QEMU ends a block before an instruction that lies on two pages, and tells plugins of the part on the first page all
/// the same. That there is such an instruction is known by the block that begins with it.
fn cut(blocks: &mut [(u64, u64, u64)]) {
    const PAGE: u64 = 4096;
    let on_two_pages: Vec<u64> = blocks
        .iter()
        .filter(|(from, to, _)| from / PAGE < to / PAGE && to % PAGE != 0)
        .map(|(from, ..)| *from)
        .collect();
    for (from, to, _) in blocks.iter_mut().filter(|(_, to, _)| to % PAGE == 0) {
        let inside = on_two_pages.partition_point(|at| *at <= *from);
        if let Some(at) = on_two_pages.get(inside).filter(|at| **at < *to) {
            *to = *at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_measurements_are_one_load() {
        let shown = "load: pipe before\nload pipe: ok\ntuned: 0 5 functions\nload: pipe installed\n\
                     load: pipe after\n";
        let line =
            |n: u64| format!("kernel {n} user 5 jumps {} misses {} small 9\n", n / 10, n / 100);
        let counted = [1000, 900, 1010].map(line).concat();
        let loads = read(shown, &counted).unwrap();
        assert_eq!(loads.len(), 1);
        assert_eq!((loads[0].before.misses, loads[0].installed.kernel), (10, 900));
        assert_eq!((loads[0].after.jumps, loads[0].after.small), (101, 9));
        assert!(read(shown, &line(1)).is_err(), "the plugin's file is short");
        assert!(read(&shown.replace("tuned: 0", "tuned: 1"), &counted).is_err());
    }

    #[test]
    fn blocks_that_were_translated_twice_add_up() {
        let executed = Executed::read("100 110 5\n108 110 7\n110 120 1\n").unwrap();
        assert_eq!(
            [0xff, 0x100, 0x108, 0x10f, 0x110, 0x120].map(|at| executed.of(at)),
            [0, 5, 12, 12, 1, 0]
        );
        assert!(Executed::read("100 110\n").is_err());
    }

    #[test]
    fn an_instruction_on_two_pages_is_of_one_block() {
        let executed = Executed::read("1fe0 2000 6\n1ffe 2010 6\n2fe0 3000 4\n").unwrap();
        assert_eq!([0x1fe0, 0x1ffd, 0x1ffe, 0x2ffe].map(|at| executed.of(at)), [6, 6, 6, 4]);
    }
}
