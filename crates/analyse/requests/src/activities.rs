//! What actors do, whatever requests they work for: the states that a schema's events put them in,
//! without the requests.

use std::collections::HashMap;

use crate::event::Batch;
use crate::program::{Program, Rule, Scope};
use crate::state::{Change, Code, State, Wait};
use crate::syntax::Role;

/// Something that became of an actor by an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// What it waited for last turned out to be this.
    Was(Wait),
    /// It does this from now on.
    Is(State),
    /// It is gone.
    Gone,
}

/// The activity of the actors of a program's first schema, as events report it.
#[derive(Debug)]
pub struct Activities {
    program: Program,
    /// Whether events report when actors are switched out.
    switches: bool,
    /// By timeline and key.
    codes: HashMap<(usize, u128), Code>,
}

impl Activities {
    /// Of a program. Without `switches`, an actor that expects something waits for it from then on.
    pub fn new(program: Program, switches: bool) -> Activities {
        Activities { program, switches, codes: HashMap::new() }
    }

    /// Calls `with` on what becomes of actors by an event: timeline, key, and what.
    pub fn take(&mut self, batch: &Batch, row: usize, with: &mut dyn FnMut(usize, u128, Activity)) {
        let Some(schema) = self.program.schemas().first() else { return };
        let event = batch.kind(row);
        let (first, end) = schema.by_event.get(event.index()).copied().unwrap_or_default();
        let rules = schema.rules.get(first as usize..end as usize).unwrap_or_default();
        let Some(rule) = rules.iter().find(|rule| rule.takes(&batch.columns, row)) else { return };
        let empty = Scope { columns: &batch.columns, row, locals: &[] };
        let locals: Vec<i128> = rule.locals.iter().map(|local| local.of(&empty)).collect();
        let scope = Scope { locals: &locals, ..empty };
        for (timeline, key, role, change) in actors(rule) {
            let Some(key) = rule.keys[key].1.of(&scope) else { continue };
            if role == Some(Role::Stop) {
                self.codes.remove(&(timeline, key));
                with(timeline, key, Activity::Gone);
            } else if let Some(change) = change {
                let code = self.codes.entry((timeline, key)).or_insert(Code::FIRST);
                if let Some(was) = change.was {
                    with(timeline, key, Activity::Was(was));
                }
                *code = code.after(change, self.switches);
                with(timeline, key, Activity::Is(code.state()));
            }
        }
    }
}

/// Actors that a rule touches: timeline, place of the key, role of a binding, change.
fn actors(rule: &Rule) -> impl Iterator<Item = (usize, usize, Option<Role>, Option<Change>)> + '_ {
    let binds = rule.binds.iter().filter(|bind| bind.actor);
    let binds = binds.map(|bind| (bind.timeline, bind.key, Some(bind.role), bind.change));
    let handoffs = rule.handoffs.iter().filter(|handoff| handoff.actor);
    binds.chain(handoffs.map(|to| (to.timeline, to.key, None, to.change)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, compile, shipped};

    /// What becomes of threads by events, in a line each.
    fn reported(switches: bool, events: &[(&str, &[u64])]) -> Vec<String> {
        let source = Source::new("threads", shipped("threads").unwrap());
        let program = compile(&[source], &shipped).unwrap();
        let mut batch = Batch::new(program.catalog());
        for (time_ns, (name, values)) in (0..).zip(events) {
            batch.push(time_ns, program.catalog().find(name).unwrap(), values);
        }
        let mut activities = Activities::new(program, switches);
        let mut reported = Vec::new();
        for row in 0..batch.len() {
            activities.take(&batch, row, &mut |_, key, activity| {
                let what = match activity {
                    Activity::Was(wait) => format!("was {}", State::Waiting(wait).name()),
                    Activity::Is(state) => state.name().to_owned(),
                    Activity::Gone => "gone".to_owned(),
                };
                reported.push(format!("{} {key}: {what}", batch.time_ns(row)));
            });
        }
        reported
    }

    #[test]
    fn threads_wait_for_what_they_began_and_are_woken() {
        let events: &[(&str, &[u64])] = &[
            ("receive_begin", &[7, 8, 1]),
            ("switch_out", &[8, 0, 0]),
            ("wakeup", &[9, 8, 0, 0]),
            ("switch_in", &[8, 0]),
            ("switch_out", &[8, 0, 1]),
            ("thread_exit", &[7, 8]),
        ];
        let wanted = [
            "0 8: running",
            "1 8: network",
            "2 8: runnable",
            "3 8: running",
            "4 8: runnable",
            "5 8: gone",
        ];
        assert_eq!(reported(true, events), wanted);
    }

    #[test]
    fn a_wait_turns_out_to_have_been_for_time() {
        let events: &[(&str, &[u64])] = &[("poll_begin", &[7, 8]), ("poll", &[7, 8, 0])];
        assert_eq!(reported(false, events), ["0 8: network", "1 8: was sleeping", "1 8: running"]);
    }
}
