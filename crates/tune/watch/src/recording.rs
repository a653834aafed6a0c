//! Looks in a file, to try rules on: one JSON object a line. Of looks in a row in which nothing has changed the
//! first and the last are there: for how long nothing did is what rules ask.

use std::io::{self, BufRead, Read, Write};

use crate::look::Look;

/// Writes looks.
#[derive(Debug)]
pub struct Recording<W: Write> {
    out: W,
    last: Option<Look>,
    /// The last one, if it is as the one that was written last.
    unchanged: Option<Look>,
}

impl<W: Write> Recording<W> {
    /// Into `out`, which should be buffered.
    pub fn new(out: W) -> Recording<W> {
        Recording { out, last: None, unchanged: None }
    }

    /// Adds a look.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn add(&mut self, look: &Look) -> io::Result<()> {
        let is_same = |last: &Look| last.processes == look.processes;
        if look.learned.is_empty() && self.last.as_ref().is_some_and(is_same) {
            self.unchanged = Some(look.clone());
            return Ok(());
        }
        self.write_unchanged()?;
        self.write(look)?;
        self.last = Some(look.clone());
        Ok(())
    }

    fn write_unchanged(&mut self) -> io::Result<()> {
        self.unchanged.take().map_or(Ok(()), |look| self.write(&look))
    }

    fn write(&mut self, look: &Look) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, look)?;
        self.out.write_all(b"\n")
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write_unchanged()?;
        self.out.flush()
    }
}

/// Bytes of a line: more than a look at ten thousand processes has.
const LINE_MAX: u64 = 16 << 20;

/// Reads looks, oldest first; a line that is none is an error with its number, behind which nothing is read.
pub fn read(mut input: impl BufRead) -> impl Iterator<Item = Result<Look, String>> {
    let mut is_over = false;
    let lines = std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let mut line = Vec::new();
        let look = match (&mut input).take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(bytes) if bytes as u64 == LINE_MAX => Err("it is too long".to_owned()),
            Ok(_) => serde_json::from_slice(&line).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        is_over = look.is_err();
        Some(look)
    });
    let numbered = lines.zip(1..);
    numbered.map(|(look, line)| look.map_err(|error| format!("line {line}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judge;
    use crate::look::{ProcessLook, Progress, ThreadLook};

    #[test]
    fn what_is_no_look_ends_it() {
        let ended = |bytes: &[u8]| read(bytes).map(|look| look.map(|_| ())).collect::<Vec<_>>();
        let look = serde_json::to_string(&Look::default()).unwrap();
        let said = ended(format!("{look}\nno look\n{look}\n").as_bytes());
        assert!(said.len() == 2 && said[0].is_ok(), "{said:?}");
        assert!(said[1].as_ref().unwrap_err().starts_with("line 2: "), "{said:?}");
        let endless = read(std::io::BufReader::new(std::io::repeat(0))).collect::<Vec<_>>();
        assert_eq!(endless, [Err("line 1: it is too long".to_owned())]);
    }

    #[test]
    fn a_rest_is_seen_in_what_is_read_again() {
        const MS: u64 = 1_000_000;
        let look = |ms: u64, cpu_ms: u64| {
            let progress = Progress { calls: 9, waits: 9 };
            let tid = fettle_types::Tid::try_from(7u32).unwrap();
            let thread = ThreadLook { tid, cpu_ns: cpu_ms * MS, progress };
            let process = ProcessLook::working(tid, vec![thread]);
            Look { at_ns: ms * MS, processes: vec![process], ..Look::default() }
        };
        // It rests for 40 ms, and computes from then on: with what is not known to have started, more is waited for.
        let looks: Vec<Look> = (0..80).map(|ms: u64| look(ms, ms.saturating_sub(40))).collect();
        let mut bytes = Vec::new();
        let mut recording = Recording::new(&mut bytes);
        looks.iter().for_each(|look| recording.add(look).unwrap());
        recording.flush().unwrap();
        let again: Vec<Look> = read(&bytes[..]).map(Result::unwrap).collect();
        assert_eq!((again.len(), &again[1].at_ns, again.last()), (41, &(40 * MS), looks.last()));
        let rule = "rule a { worker of \"app\" spins 2ms without progress -> log }";
        let found = |looks: &[Look]| {
            let mut judge = Judge::new(crate::parse::parse("r", rule).unwrap());
            looks.iter().flat_map(|look| judge.see(look)).collect::<Vec<_>>()
        };
        assert_eq!((found(&again), found(&looks).len()), (found(&looks), 1));
    }
}
