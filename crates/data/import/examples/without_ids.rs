//! How well traces are reconstructed from spans without ids, by those that their ids name.
//!
//! without_ids connections|both|asked FILE...: `connections` takes all spans; `both` without what they say of
//! connections; `asked` only those of the side that was asked, as a proxy before each service reports them. Prints a line of JSON for each way of choosing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use fettle_import::{Span, plain, read_spans};
use fettle_reconstruct::{How, Reconstruction, reconstruct_by};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().context("connections, both or asked")?;
    let inputs: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let (read, _) = read_spans(&inputs, None)?;
    let mut spans = read.spans;
    match kind.as_str() {
        "connections" => {}
        "both" => spans.iter_mut().for_each(|span| span.about.port = None),
        "asked" => only_asked(&mut spans),
        _ => bail!("{kind:?} is none of connections, both, asked"),
    }
    let truth = truth(&spans);
    let plain = plain(&spans);
    for (name, how) in
        [("fettle", How::Likeliest), ("first come", How::FirstCome), ("nearest", How::Nearest)]
    {
        let begin = Instant::now();
        let made = reconstruct_by(&plain, how);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}", Score::of(&truth, &made).line(&kind, name, spans.len(), seconds));
    }
    Ok(())
}

/// Leaves out the spans of the sides that ask: what was asked is the child of what asked.
fn only_asked(spans: &mut Vec<Span>) {
    let above: HashMap<String, (String, bool)> = spans
        .iter()
        .map(|span| (span.span.clone(), (span.parent.clone(), span.about.kind == "client")))
        .collect();
    spans.retain(|span| span.about.kind == "server");
    for span in spans {
        while let Some((parent, true)) = above.get(&span.parent) {
            span.parent.clone_from(parent);
        }
    }
}

/// The place of each span's parent.
fn truth(spans: &[Span]) -> Vec<Option<u32>> {
    let places: HashMap<&str, u32> = (0..).zip(spans).map(|(n, s)| (s.span.as_str(), n)).collect();
    spans.iter().map(|span| places.get(span.parent.as_str()).copied()).collect()
}

#[derive(Default)]
struct Score {
    links: u64,
    right: u64,
    chosen: u64,
    candidates: u64,
    /// Links that are wrong, and those of them that are said to be less than 0.9 likely.
    wrong: u64,
    marked: u64,
    traces: u64,
    traces_right: u64,
    /// Traces that are wrong, and those of them with a link that is less than 0.9 likely.
    traces_marked: u64,
    /// Links by what is said of them, in tenths: how many, how likely, how many right.
    reliability: [(u64, f64, u64); 10],
}

impl Score {
    fn of(truth: &[Option<u32>], made: &Reconstruction) -> Score {
        let mut score = Score::default();
        let root = |of: u32| {
            let (mut at, mut steps) = (of, 0);
            while let Some(parent) = truth[at as usize].filter(|_| steps < 1000) {
                (at, steps) = (parent, steps + 1);
            }
            at
        };
        // By trace: whether all is right, and whether something is marked.
        let mut traces: HashMap<u32, (bool, bool)> = HashMap::new();
        for (number, (link, parent)) in (0_u32..).zip(made.links.iter().zip(truth)) {
            let right = link.parent == *parent;
            let doubtful = link.likely < 0.9;
            for end in [Some(number), link.parent].into_iter().flatten() {
                let of = traces.entry(root(end)).or_insert((true, false));
                of.0 &= right;
                of.1 |= doubtful;
            }
            if parent.is_none() && link.parent.is_none() && link.candidates == 0 {
                continue;
            }
            score.links += 1;
            score.right += u64::from(right);
            score.wrong += u64::from(!right);
            score.marked += u64::from(!right && doubtful);
            if link.candidates > 1 {
                score.chosen += 1;
                score.candidates += u64::from(link.candidates);
                let bin = &mut score.reliability[((link.likely * 10.0) as usize).min(9)];
                *bin = (bin.0 + 1, bin.1 + f64::from(link.likely), bin.2 + u64::from(right));
            }
        }
        score.traces = traces.len() as u64;
        score.traces_right = traces.values().filter(|(right, _)| *right).count() as u64;
        score.traces_marked =
            traces.values().filter(|(right, marked)| !right && *marked).count() as u64;
        score
    }

    fn line(&self, kind: &str, how: &str, spans: usize, seconds: f64) -> String {
        let reliability: Vec<String> = self
            .reliability
            .iter()
            .map(|(count, likely, right)| {
                format!("[{count},{:.3},{right}]", likely / (*count).max(1) as f64)
            })
            .collect();
        format!(
            "{{\"kind\":\"{kind}\",\"how\":\"{how}\",\"spans\":{spans},\"seconds\":{seconds:.4},\
             \"links\":{},\"right\":{},\"chosen\":{},\"candidates\":{:.1},\"wrong\":{},\"marked\":{},\
             \"traces\":{},\"traces_right\":{},\"traces_marked\":{},\"reliability\":[{}]}}",
            self.links,
            self.right,
            self.chosen,
            self.candidates as f64 / self.chosen.max(1) as f64,
            self.wrong,
            self.marked,
            self.traces,
            self.traces_right,
            self.traces_marked,
            reliability.join(","),
        )
    }
}
