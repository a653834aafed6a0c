//! The short ways, [`crate::plain`] and [`crate::simple`], against the one that is always right,
//! [`crate::apply`]: any events, cut into any batches, by any schema. And requests that are recorded
//! whole against those that are only counted.

use crate::{Batch, Complete, Engine, Options, Request, SCHEMAS, Source, compile, shipped};

/// Rules that come close to the edges of the short ways.
const EDGES: &str = r#"
event a(x: u32, y: u32) event b(x: u32, y: u32) event c(x: u32, y: i64) event d(x: u64, y: u64)
event e(x: u64, y: u64) event f(x: u32, y: u32)
actor t(x: u32) timeline p(x: u32, y: u32) timeline q(x: u64, y: u64) timeline i(x: u32) implicit
stream s(x: u64, y: u64)
on a where x == y { start t(x)  start p(x, y) after b, nothing  seed }
on a where y in (1, 2, -5) { basic t(x) expects disk  basic p(x, y) }
on a { start t(x) is running  basic t(y) is blocked  stop p(y, x) }
on b where x > 3 {
  let z = x + y
  basic i(x)  basic t(y) was lock is runnable expects network  start q(z, y) seed "b"
}
on b { basic t(x) is blocked  basic i(y) }
on c where y < 4 { basic t(y) is running }
on c { stop t(x)  join p(x, y)  note i(x) }
on d where x < y { settle if p(3, 3) unless settled q(x, y)  unsettle if i(x)  handoff t(3) -> start t(4) is runnable  mark p(3, 3)  basic q(x, y) if p(3, 3) }
on d { basic t(2)  receive s(x, y) bytes x + y answers s(y, x)  seed  send s(y, x) bytes y at x }
on e where y == 0 { basic t(1)  send s(x, x) bytes y + 1 if i(y)  stop q(x, y) unless p(3, 3) }
on e { handoff t(5) -> t(6) is runnable  unmark p(3, 3)  start i(7)  stop s(x, y)  end }
on f where x == 1 and y > 2 { lend t(x) -> p(x, y) unless q(x, y)  lend i(y) -> t(y)  basic t(x)  drop p(y, x) if q(x, y)  drop t(y) if settled t(y)  drop settled i(x) }
on f where x == 1 { start t(x)  start p(x, y)  start i(y)  seed }
on f where x == 2 { stop p(x, y)  stop i(y)  stop t(x) }
on f { basic i(x)  basic i(y) }
"#;

type Event = (u64, u64, Vec<u64>);

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}

/// Events of any kind, whose few values meet often; some do not fit, and some clocks are set back.
fn events(state: &mut u64) -> Vec<Event> {
    let number = [50, 300, 2000][random(state) as usize % 3];
    let values = [3, 6, 20, 100][random(state) as usize % 4];
    let (first, kinds) = (random(state) % 60, if random(state).is_multiple_of(2) { 60 } else { 8 });
    // Some logs of requests have far times.
    let step_ns = [20, 20, 20, 1 << 30][random(state) as usize % 4];
    let mut time_ns = 5_000;
    let mut event = |_| {
        time_ns += random(state) % step_ns;
        if random(state).is_multiple_of(500) {
            time_ns = time_ns - random(state) % 2000 + random(state) % 1500;
        }
        let mut value = || match random(state) % 200 {
            0 => u64::MAX - random(state) % values,
            _ => random(state) % values,
        };
        let fields = (0..16).map(|_| value()).collect();
        (time_ns, first + random(state) % kinds, fields)
    };
    (0..number).map(&mut event).collect()
}

/// Limits that are met, or not.
fn options(state: &mut u64) -> Options {
    let mut pick = |small_set: usize, many: usize| {
        if random(state).is_multiple_of(3) { small_set } else { many }
    };
    Options {
        sections_max: pick(5, 1 << 20),
        requests_max: pick(4, 1 << 20),
        events_max: pick(10, 1 << 20),
        swallow_min: 1 << 20,
        ranges_max: pick(3, 4096),
        sharers_max: pick(2, 16),
        switches: pick(0, 1) == 1,
        quiet_ns: (pick(0, 1) == 0).then(|| 200 + random(state) % 3000),
        jump_ns: 500,
        only: None,
    }
}

/// What comes out, and what was counted.
fn run(mut engine: Engine, events: &[Event], cuts: &[usize]) -> (Vec<Request>, String) {
    let catalog = engine.program().catalog().clone();
    let kinds: Vec<_> = catalog.events().iter().filter_map(|e| catalog.find(&e.name)).collect();
    let mut found = Vec::new();
    let mut counted = Vec::new();
    let mut notify = |request: Complete<'_>| {
        counted.push((request.id(), request.events(), request.outcome()));
        if request.is_reported() {
            found.push(request.read().clone());
        }
    };
    for cut in cuts.windows(2) {
        let mut batch = Batch::new(&catalog);
        for (time_ns, kind, fields) in &events[cut[0]..cut[1]] {
            let fields = &fields[..catalog.width().min(fields.len())];
            batch.push(*time_ns, kinds[*kind as usize % kinds.len()], fields);
        }
        engine.feed(&batch, &mut notify);
    }
    let open = engine.open();
    engine.finish(&mut notify);
    for spans in found.iter().flat_map(|request| request.spans.windows(2)) {
        assert!(!{ spans[0] }.goes_on(&spans[1]), "one span in two: {spans:?}");
        assert!(spans[1].from_ns < spans[1].to_ns);
    }
    let counts = (engine.counts(), engine.schema_counts(0));
    (found, format!("{counts:?} {open:?} {counted:?}"))
}

#[test]
fn short_ways_and_batches_make_no_difference() {
    let mut state = 0x2545_f491_4f6c_dd1d ^ u64::from(std::process::id());
    println!("seed {state:#x}");
    let schemas = SCHEMAS.iter().map(|(_, text)| *text).chain([EDGES; 10]);
    let schemas: Vec<&str> = schemas.collect();
    let mut requests = 0;
    for round in 0..200 {
        let schema = schemas[round % schemas.len()];
        let program = compile(&[Source::new("alike", schema)], &shipped).unwrap();
        let (events, options) = (events(&mut state), options(&mut state));
        let engine = || Engine::new(program.clone(), options);
        let right = run(engine().general(), &events, &[0, events.len()]);
        let mut cuts: Vec<usize> = (0..random(&mut state) % 6)
            .map(|_| random(&mut state) as usize % events.len())
            .collect();
        cuts.extend([0, events.len()]);
        cuts.sort_unstable();
        let short = run(engine(), &events, &cuts);
        assert!(right == short, "round {round}: {schema}\n{right:?}\n{short:?}");
        // A request is the same if it is the only one that is recorded whole, and nothing else is
        // different.
        let only = right.0.iter().map(|request| request.id).max().unwrap_or(0) / 2;
        let one = Engine::new(program.clone(), Options { only: Some(only), ..options });
        let reported: Vec<Request> = right.0.iter().filter(|r| r.id == only).cloned().collect();
        let one = run(one, &events, &cuts);
        assert!(
            one.0 == reported && one.1 == right.1,
            "round {round}: {schema}\n{one:?}\n{reported:?}"
        );
        requests += right.0.len();
    }
    assert!(requests > 1000, "{requests} requests are not enough to say anything");
}
