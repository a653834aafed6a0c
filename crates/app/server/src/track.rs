//! One row of a timeline, and the pyramid that lets any stretch of it be drawn from few pieces.
//!
//! Spans of a track follow each other: a thread does one thing at a time at each depth. Above
//! them stand blocks of eight spans, blocks of eight blocks, and so on, each of which knows where
//! it begins and ends, how much of that is filled, and by what mostly. A viewport walks along the
//! spans and takes, at each place, the largest block that is no wider than a pixel. So the work
//! and the answer grow with the pixels and not with the spans, however unevenly spans lie in
//! time; a pyramid over *time* would have nearly empty blocks here and overfull ones there.

/// Spans of a block, and blocks of a higher one.
const FANOUT: usize = 8;
const FANOUT_BITS: u32 = FANOUT.trailing_zeros();

/// Stands for a duration that is in [`Track::long`].
const LONG: u32 = u32::MAX;

/// Something that took time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Beginning, nanoseconds of trace time.
    pub start_ns: u64,
    /// Nanoseconds from beginning to end.
    pub duration_ns: u64,
    /// What it is: a place in [`crate::timelines::Timelines::labels`].
    pub label: u32,
    /// How many calls it stands for: 1 unless calls were sampled.
    pub weight: u32,
    /// Nanoseconds of it that its thread was off-CPU.
    pub off_cpu_ns: u64,
}

impl Span {
    /// End, nanoseconds of trace time.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// Spans in order of time, with a pyramid over them.
///
/// In columns, sixteen bytes a span: what hardly any span has is kept apart.
#[derive(Debug, Default)]
pub struct Track {
    starts: Vec<u64>,
    durations: Vec<u32>,
    labels: Vec<u32>,
    /// Durations that do not fit, by index.
    long: Vec<(u32, u64)>,
    /// Off-CPU time of the spans that have some, by index.
    off_cpu: Vec<(u32, u64)>,
    /// Empty while all weights are 1.
    weights: Vec<u32>,
    /// Blocks of 8 spans, of 64, and so on; the last level has few.
    levels: Vec<Vec<Block>>,
}

/// Several spans that lie one behind the other.
#[derive(Clone, Copy, Debug)]
struct Block {
    start_ns: u64,
    end_ns: u64,
    /// Nanoseconds that its spans fill.
    busy_ns: f32,
    /// Nanoseconds of the longest.
    longest_ns: f32,
    /// What the longest is.
    label: u32,
}

/// Something to draw: one span, or several that are too small to be drawn each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Beginning, nanoseconds of trace time.
    pub start_ns: u64,
    /// End, nanoseconds of trace time.
    pub end_ns: u64,
    /// What it is, or what its longest span is.
    pub label: u32,
    /// Spans in it.
    pub spans: u32,
    /// Index of its first span.
    pub index: u32,
    /// How much of it is filled, 0 to 1.
    pub filled: f32,
}

/// An interval of time, and the resolution at which it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Viewport {
    /// Beginning, nanoseconds of trace time.
    pub from_ns: u64,
    /// End, nanoseconds of trace time.
    pub to_ns: u64,
    /// Spans that are shorter than a cell and begin in the same one are drawn as one piece. A cell
    /// is two to the power of this many nanoseconds long and begins at a multiple, so pieces stay
    /// what they are while a viewport moves.
    pub cell_bits: u32,
}

impl Track {
    /// Number of spans.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Adds a span behind the others. False, and nothing is added, if it begins before the last
    /// one, which only a damaged trace can say, or if there is no number left for it.
    pub fn push(&mut self, span: Span) -> bool {
        let last = self.starts.last().copied().unwrap_or(0);
        let Ok(index) = u32::try_from(self.starts.len()) else { return false };
        if span.start_ns < last {
            return false;
        }
        self.starts.push(span.start_ns);
        self.labels.push(span.label);
        match u32::try_from(span.duration_ns) {
            Ok(ns) if ns != LONG => self.durations.push(ns),
            _ => {
                self.durations.push(LONG);
                self.long.push((index, span.duration_ns));
            }
        }
        if span.off_cpu_ns > 0 {
            self.off_cpu.push((index, span.off_cpu_ns));
        }
        if span.weight != 1 && self.weights.is_empty() {
            self.weights = vec![1; self.starts.len() - 1];
        }
        if span.weight != 1 || !self.weights.is_empty() {
            self.weights.push(span.weight);
        }
        true
    }

    /// Builds the pyramid; call it when all spans are there.
    pub fn finish(&mut self) {
        let mut level: Vec<Block> = Vec::with_capacity(self.len().div_ceil(FANOUT));
        for first in (0..self.len()).step_by(FANOUT) {
            let spans = first..(first + FANOUT).min(self.len());
            level.extend(joined(spans.map(|at| self.block_of_one(at))));
        }
        self.levels.clear();
        while level.len() > 1 {
            let above = level.chunks(FANOUT).filter_map(|blocks| joined(blocks.iter().copied()));
            let above = above.collect();
            self.levels.push(std::mem::replace(&mut level, above));
        }
        self.levels.push(level);
    }

    fn block_of_one(&self, at: usize) -> Block {
        let (start_ns, duration_ns) = (self.starts[at], self.duration_ns(at));
        let end_ns = start_ns.saturating_add(duration_ns);
        let ns = duration_ns as f32;
        Block { start_ns, end_ns, busy_ns: ns, longest_ns: ns, label: self.labels[at] }
    }

    fn duration_ns(&self, at: usize) -> u64 {
        match self.durations[at] {
            LONG => found(&self.long, at).unwrap_or(u64::from(LONG)),
            ns => u64::from(ns),
        }
    }

    /// What a span is.
    pub fn label(&self, at: usize) -> Option<u32> {
        self.labels.get(at).copied()
    }

    /// All labels, in order.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The span of this index.
    pub fn span(&self, at: usize) -> Option<Span> {
        Some(Span {
            start_ns: *self.starts.get(at)?,
            duration_ns: self.duration_ns(at),
            label: self.labels[at],
            weight: self.weights.get(at).copied().unwrap_or(1),
            off_cpu_ns: found(&self.off_cpu, at).unwrap_or(0),
        })
    }

    /// Indices of the spans that overlap an interval of time.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> std::ops::Range<usize> {
        let mut first = self.starts.partition_point(|&start| start < from_ns);
        if first > 0 && self.starts[first - 1].saturating_add(self.duration_ns(first - 1)) > from_ns
        {
            first -= 1;
        }
        let end = self.starts.partition_point(|&start| start < to_ns);
        first..end.max(first)
    }

    /// The last span that begins no later than this time, if it reaches to it.
    pub fn around(&self, ns: u64) -> Option<usize> {
        let at = self.starts.partition_point(|&start| start <= ns).checked_sub(1)?;
        (self.starts[at].saturating_add(self.duration_ns(at)) > ns).then_some(at)
    }

    /// Appends what is to be drawn of a viewport, in order of time.
    pub fn pieces(&self, viewport: Viewport, out: &mut Vec<Piece>) {
        let cell_bits = viewport.cell_bits.min(62);
        let spans = self.between(viewport.from_ns, viewport.to_ns);
        let mut pending: Option<Pending> = None;
        let mut at = spans.start;
        while at < spans.end {
            let (block, count) = self.largest_within(at, spans.end, 1 << cell_bits);
            let cell = block.start_ns >> cell_bits;
            let small = block.end_ns - block.start_ns < 1 << cell_bits;
            match &mut pending {
                Some(piece) if small && piece.cell == cell => piece.add(block, count),
                _ => {
                    out.extend(pending.take().map(Pending::done));
                    let new = Pending { cell, block, spans: count, index: at };
                    if small { pending = Some(new) } else { out.push(new.done()) }
                }
            }
            at += count;
        }
        out.extend(pending.map(Pending::done));
    }

    /// The largest block that begins at a span, ends before `end` and is shorter than a cell; the
    /// span by itself if there is none. Also its number of spans.
    ///
    /// A block may reach into the next cell: to cut it there, down to single spans, would be most
    /// of the work and could not be seen.
    #[inline]
    fn largest_within(&self, at: usize, end: usize, cell_ns: u64) -> (Block, usize) {
        let aligned = at.trailing_zeros() / FANOUT_BITS;
        let highest = self.levels.len().min(aligned as usize);
        for level in (0..highest).rev() {
            let bits = (level as u32 + 1) * FANOUT_BITS;
            let Some(block) = self.levels[level].get(at >> bits) else { continue };
            let count = (1usize << bits).min(self.len() - at);
            if at + count <= end && block.end_ns - block.start_ns < cell_ns {
                return (*block, count);
            }
        }
        (self.block_of_one(at), 1)
    }
}

/// A piece that may still grow.
struct Pending {
    cell: u64,
    block: Block,
    spans: usize,
    index: usize,
}

impl Pending {
    fn add(&mut self, block: Block, spans: usize) {
        self.block = self.block.and(block);
        self.spans += spans;
    }

    fn done(self) -> Piece {
        let Block { start_ns, end_ns, busy_ns, label, .. } = self.block;
        let width_ns = end_ns - start_ns;
        let filled = if width_ns == 0 { 1.0 } else { (busy_ns / width_ns as f32).min(1.0) };
        let (spans, index) = (self.spans as u32, self.index as u32);
        Piece { start_ns, end_ns, label, spans, index, filled }
    }
}

impl Block {
    /// This block and one behind it.
    #[inline]
    fn and(self, next: Block) -> Block {
        let longer = next.longest_ns > self.longest_ns;
        Block {
            start_ns: self.start_ns,
            end_ns: self.end_ns.max(next.end_ns),
            busy_ns: self.busy_ns + next.busy_ns,
            longest_ns: if longer { next.longest_ns } else { self.longest_ns },
            label: if longer { next.label } else { self.label },
        }
    }
}

fn joined(blocks: impl Iterator<Item = Block>) -> Option<Block> {
    blocks.reduce(Block::and)
}

fn found(list: &[(u32, u64)], at: usize) -> Option<u64> {
    let place = list.binary_search_by_key(&at, |(index, _)| *index as usize).ok()?;
    Some(list[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % below
    }

    /// Spans in bursts: some nanoseconds here, seconds there.
    fn track(spans: usize, seed: u64) -> Track {
        let mut state = seed;
        let (mut track, mut now) = (Track::default(), 0);
        for _ in 0..spans {
            let scale = 1 << random(&mut state, 24);
            now += random(&mut state, scale);
            let duration_ns = random(&mut state, scale);
            let label = random(&mut state, 20) as u32;
            let off_cpu_ns = if label == 3 { duration_ns / 2 } else { 0 };
            assert!(track.push(Span { start_ns: now, duration_ns, label, weight: 1, off_cpu_ns }));
            now += duration_ns;
        }
        track.finish();
        track
    }

    #[test]
    fn pieces_hold_every_span_once_in_order_at_every_zoom() {
        let track = track(5000, 42);
        let end_ns = track.span(track.len() - 1).unwrap().end_ns();
        for cell_bits in [0, 3, 6, 12, 20, 30, 40, 64] {
            let cell_ns = 1 << cell_bits.min(62);
            let mut pieces = Vec::new();
            track.pieces(Viewport { from_ns: 0, to_ns: end_ns + 1, cell_bits }, &mut pieces);
            let mut at = 0;
            for piece in &pieces {
                let spans = at..at + piece.spans as usize;
                assert_eq!(piece.index as usize, at);
                let (first, last) =
                    (track.span(spans.start).unwrap(), track.span(spans.end - 1).unwrap());
                assert_eq!((piece.start_ns, piece.end_ns), (first.start_ns, last.end_ns()));
                let longest = spans.clone().map(|at| track.span(at).unwrap().duration_ns).max();
                let labels = spans.clone().map(|at| track.span(at).unwrap());
                assert!(
                    labels
                        .filter(|span| Some(span.duration_ns) == longest)
                        .any(|span| span.label == piece.label)
                );
                // A span longer than a cell is drawn by itself.
                assert!(piece.spans == 1 || piece.end_ns - piece.start_ns < 2 * cell_ns);
                at = spans.end;
            }
            assert_eq!(at, track.len());
        }
    }

    #[test]
    fn the_answer_grows_with_the_pixels_and_not_with_the_spans() {
        let track = track(200_000, 7);
        let end_ns = track.span(track.len() - 1).unwrap().end_ns();
        for pixels in [100, 1000] {
            let mut pieces = Vec::new();
            let cell_bits = (end_ns / pixels).ilog2() + 1;
            track.pieces(Viewport { from_ns: 0, to_ns: end_ns, cell_bits }, &mut pieces);
            assert!(pieces.len() as u64 <= 2 * pixels + 2, "{} for {pixels}", pieces.len());
        }
    }

    #[test]
    fn a_viewport_has_what_a_plain_search_finds() {
        let track = track(3000, 3);
        let mut state = 99;
        let end_ns = track.span(track.len() - 1).unwrap().end_ns();
        for _ in 0..500 {
            let from_ns = random(&mut state, end_ns);
            let to_ns = from_ns + random(&mut state, end_ns / 10);
            let spans = track.between(from_ns, to_ns);
            let plain: Vec<usize> = (0..track.len())
                .filter(|&at| {
                    let span = track.span(at).unwrap();
                    let inside = span.start_ns >= from_ns && span.start_ns < to_ns;
                    inside || span.start_ns < from_ns && span.end_ns() > from_ns
                })
                .collect();
            assert_eq!(spans.collect::<Vec<_>>(), plain);
            let around = plain.iter().copied().find(|&at| {
                let span = track.span(at).unwrap();
                span.start_ns <= from_ns && span.end_ns() > from_ns
            });
            assert_eq!(track.around(from_ns), around);
        }
    }

    #[test]
    fn rare_values_are_kept_apart_and_found_again() {
        let mut track = Track::default();
        let plain = Span { start_ns: 5, duration_ns: 10, label: 1, weight: 1, off_cpu_ns: 0 };
        let rare = Span { start_ns: 20, duration_ns: 1 << 40, label: 2, weight: 64, off_cpu_ns: 9 };
        assert!(track.push(plain) && track.push(rare));
        assert!(!track.push(plain), "begins before the last one");
        track.finish();
        assert_eq!((track.span(0), track.span(1), track.span(2)), (Some(plain), Some(rare), None));
        assert!(Track::default().is_empty());
    }
}
