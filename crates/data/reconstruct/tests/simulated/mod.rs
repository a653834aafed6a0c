//! A shop that exists on paper only: spans with known parents, from seeded random numbers.
#![allow(dead_code)] // Not every user needs all of it.

use fettle_reconstruct::{Side, Span};

/// Spans and the parent of each.
#[derive(Default)]
pub struct Made {
    pub spans: Vec<Span>,
    pub parents: Vec<Option<u32>>,
}

/// What a service does for a question: calls one group after the other, each group's at once; and how
/// many of ten times.
type Steps = &'static [&'static [(u32, u64)]];

/// By service.
const SHOP: [Steps; 8] = [
    // 0 asks 1, then 2, 3 and 4 at once, then 5 in half of all cases.
    &[&[(1, 10)], &[(2, 10), (3, 10), (4, 10)], &[(5, 5)]],
    &[&[(6, 3)]],
    &[&[(6, 6)], &[(7, 10)]],
    &[&[(7, 10)]],
    &[],
    &[&[(6, 10)], &[(6, 10)]],
    &[],
    &[&[(6, 4)]],
];

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A delay that is about so long, with a long tail.
    fn about(&mut self, ns: f64, spread: f64) -> u64 {
        let normal = (0..12).map(|_| self.share()).sum::<f64>() - 6.0;
        (ns * (normal * spread).exp()) as u64
    }
}

/// So many requests, on average one each `every_ns`.
pub fn shop(seed: u64, requests: usize, every_ns: f64) -> Made {
    let mut random = Random::new(seed);
    let mut made = Made::default();
    let mut now = 1_000_000_000_000;
    for _ in 0..requests {
        now += (-(1.0 - random.share()).ln() * every_ns) as u64;
        serve(0, now, None, None, &mut random, &mut made);
    }
    shuffled(&made, &mut random)
}

/// The same spans in no order.
fn shuffled(made: &Made, random: &mut Random) -> Made {
    let mut order: Vec<u32> = (0..made.spans.len() as u32).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, (random.next() % (at as u64 + 1)) as usize);
    }
    let mut place = vec![0; order.len()];
    for (new, old) in (0_u32..).zip(&order) {
        place[*old as usize] = new;
    }
    let parent = |old: &u32| made.parents[*old as usize].map(|parent| place[parent as usize]);
    Made {
        spans: order.iter().map(|old| made.spans[*old as usize]).collect(),
        parents: order.iter().map(parent).collect(),
    }
}

/// A service answers; when it has.
fn serve(
    service: u32,
    begin: u64,
    parent: Option<u32>,
    from: Option<u32>,
    random: &mut Random,
    made: &mut Made,
) -> u64 {
    let own = made.spans.len();
    made.spans.push(Span {
        begin_ns: begin,
        side: Side::Callee,
        process: service,
        service,
        peer: from,
        name: service,
        ..Span::default()
    });
    made.parents.push(parent);
    let mut now = begin + random.about(500_000.0, 0.4);
    for group in SHOP[service as usize] {
        let mut until = now;
        for (callee, tenths) in *group {
            if random.next() % 10 >= *tenths {
                continue;
            }
            let call = made.spans.len() as u32;
            made.spans.push(Span {
                begin_ns: now,
                side: Side::Caller,
                process: service,
                service,
                peer: Some(*callee),
                name: *callee,
                ..Span::default()
            });
            made.parents.push(Some(own as u32));
            let there = now + random.about(150_000.0, 0.3);
            let answered = serve(*callee, there, Some(call), Some(service), random, made);
            let end = answered + random.about(150_000.0, 0.3);
            made.spans[call as usize].end_ns = end;
            until = until.max(end);
            now += random.about(20_000.0, 0.3);
        }
        now = now.max(until) + random.about(300_000.0, 0.4);
    }
    if SHOP[service as usize].is_empty() {
        now += random.about(4_000_000.0, 0.5);
    }
    made.spans[own].end_ns = now;
    now
}
