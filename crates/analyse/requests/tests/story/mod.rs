//! Events as text: time, name and fields on a line each.

use fettle_requests::{
    Batch, Engine, Field, FieldType, Options, Program, Request, Source, Strings, compile, shipped,
};

/// What became of some events.
pub struct Story {
    pub engine: Engine,
    pub requests: Vec<Request>,
}

#[allow(dead_code, reason = "each test uses a part")]
impl Story {
    /// Runs a schema over events.
    pub fn notify(schema: &str, text: &str) -> Story {
        Story::with(schema, text, Options::default())
    }

    /// The same with options of its own.
    pub fn with(schema: &str, text: &str, options: Options) -> Story {
        let program = compile(&[Source::new("story", schema)], &shipped);
        let program = program.unwrap_or_else(|report| panic!("{report}"));
        let batch = batch(&program, text);
        let mut engine = Engine::new(program, options);
        let mut requests = Vec::new();
        engine.feed(&batch, &mut |request| requests.push(request.read().clone()));
        engine.finish(&mut |request| requests.push(request.read().clone()));
        assert_eq!(engine.open().1, 0);
        Story { engine, requests }
    }

    /// The lines that each request's events stand in, from 0, in order of the requests' completion.
    pub fn events(&self) -> Vec<Vec<u64>> {
        let events = |request: &Request| request.events.iter().map(|event| event.ordinal).collect();
        self.requests.iter().map(events).collect()
    }

    /// What each is called.
    pub fn classes(&self) -> Vec<&str> {
        let classes = self.engine.program().schemas()[0].classes();
        self.requests.iter().map(|request| classes[request.class].as_str()).collect()
    }
}

/// Events from their text.
pub fn batch(program: &Program, text: &str) -> Batch {
    let catalog = program.catalog();
    let mut strings: Strings = program.strings().clone();
    let mut batch = Batch::new(catalog);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let time = words.next().unwrap().parse().unwrap();
        let name = words.next().unwrap();
        let event = catalog.find(name).unwrap_or_else(|| panic!("no event {name}"));
        let fields = &catalog.get(event).unwrap().fields;
        let values: Vec<&str> = words.collect();
        assert!(values.len() <= fields.len(), "{line}");
        // Fields that are left out at the end are 0, false or empty.
        let given = values.into_iter().map(Some).chain(std::iter::repeat(None));
        let default = |field: &Field| if field.ty == FieldType::Text { "" } else { "0" };
        let values: Vec<u64> = given
            .zip(fields)
            .map(|(value, field)| (value.unwrap_or_else(|| default(field)), field))
            .map(|(value, field)| match field.ty {
                FieldType::Bool => u64::from(value == "true"),
                FieldType::Text => u64::from(strings.code(value.trim_matches('"'))),
                _ => value.parse::<i128>().unwrap() as u64,
            })
            .collect();
        batch.push(time, event, &values);
    }
    batch
}
