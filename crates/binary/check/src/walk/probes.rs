//! What stands between the instructions.

use fettle_code::{Arguments, Mode, Moment, user_call};
use fettle_lift::edges::Place;
use fettle_lift::function::BlockId;

use crate::fault::{CheckError, Fault, fail};
use crate::probe::NO_ROOM_FROM;
use crate::summary::Kind;
use crate::user_probe;
use crate::walk::Walk;
impl Walk<'_, '_> {
    /// The stretch that starts at `n`.
    pub(crate) fn stretch_at(&mut self, n: u32) -> Option<usize> {
        while self.s.stretches.get(self.stretch).is_some_and(|s| s.start < n) {
            self.stretch += 1;
        }
        self.s.stretches.get(self.stretch).filter(|s| s.start == n).map(|_| self.stretch)
    }

    /// Wants the counter at `n`, if there is one, of control that goes from `block` straight on.
    pub(crate) fn counter_between(
        &mut self,
        block: BlockId,
        to: u64,
        n: u32,
    ) -> Result<u32, CheckError> {
        match self.block_at(to) {
            Some(next) => self.counter(to, n, Place::Between(block, next)),
            None => Ok(n),
        }
    }

    /// Wants a probe of `kind` at `n`, before the original's `a`; where it ends.
    pub(crate) fn probe(&mut self, a: u64, n: u32, want: Kind) -> Result<u32, CheckError> {
        let n = self.skip_padding(a, n);
        let Some(i) = self.stretch_at(n) else { return fail(a, Fault::NoProbe(want)) };
        let stretch = self.s.stretches[i];
        match stretch.at {
            Some(at) if at == a => {}
            Some(_) => return fail(a, Fault::TwoCopies),
            None => {
                let range = (stretch.start, stretch.end);
                let user_probe = self.context.probes.mode == Mode::User;
                let found = match self.shapes.check(self.code, &self.s.fixups, range, user_probe) {
                    Ok(found) => found,
                    Err(fault) => return fail(a, fault),
                };
                let summary = self.shapes.summary(found.shape);
                let inside = summary.depths.iter().all(|d| {
                    let base = found.parts[d.part as usize];
                    base + d.start >= self.chunk.0 && base + d.end <= self.chunk.1
                });
                if !inside || stretch.end > self.chunk.1 {
                    return fail(a, Fault::TooShort);
                }
                let kind = summary.kind;
                let stretch = &mut self.s.stretches[i];
                stretch.at = Some(a);
                stretch.shape = found.shape as u32;
                stretch.kind = kind;
                stretch.counter = found.counter.unwrap_or(u32::MAX);
                stretch.parts = found.parts;
            }
        }
        let stretch = &self.s.stretches[i];
        let in_line = stretch.kind == Kind::Own && matches!(want, Kind::UserCall(_));
        if in_line && !self.is_user_code(i, want) {
            return fail(a, Fault::Own);
        }
        let stretch = &self.s.stretches[i];
        if stretch.kind != want && !in_line {
            return fail(a, Fault::OtherProbe { found: stretch.kind, want });
        }
        Ok(stretch.end)
    }

    /// Whether stretch `i`, which is safe, is the function of the user probe that `want`
    /// would call.
    pub(crate) fn is_user_code(&self, i: usize, want: Kind) -> bool {
        let stretch = &self.s.stretches[i];
        let (from, to) = self.shapes.summary(stretch.shape as usize).work;
        let range = (stretch.start + from, stretch.start + to);
        let Some(user_probe) = self.context.probes.user_probe else { return false };
        let moments = [Moment::Enters, Moment::Returns, Moment::TailCalls];
        let moment = moments
            .into_iter()
            .find(|m| user_call(user_probe, *m).map(Kind::UserCall) == Some(want));
        let function = match moment {
            Some(Moment::Enters) => user_probe.enter.as_ref(),
            _ => user_probe.leave.as_ref(),
        };
        let inline = function.and_then(|f| f.inline.as_ref());
        inline.is_some_and(|inline| {
            (moment != Some(Moment::TailCalls) || !inline.reads_result)
                && user_probe::is_code(inline, self.code, &self.s.fixups, range)
        })
    }

    /// Wants a probe of `kind` at `n`, before the original's `a`, from where control leaves; where
    /// it ends.
    pub(crate) fn exit_probe(&mut self, a: u64, n: u32, kind: Kind) -> Result<u32, CheckError> {
        let start = self.skip_padding(a, n);
        let end = self.probe(a, n, kind)?;
        if let Some(i) = self.stretch_at(start) {
            self.s.stretches[i].leaving = true;
        }
        Ok(end)
    }

    /// The counter that is said to stand at `place`. In the mode that counts blocks all are there.
    pub(crate) fn counter_at(&self, place: Place) -> Option<u32> {
        self.claim.emitted.counters.binary_search(&place).ok().map(|n| n as u32)
    }

    /// Wants the counter of `place` at `n`, before the original's `a`, if there is one; where it
    /// ends.
    pub(crate) fn counter(&mut self, a: u64, n: u32, place: Place) -> Result<u32, CheckError> {
        let counter = match (self.context.probes.mode, place) {
            (Mode::Blocks, Place::Block(_)) | (Mode::Edges, _) => self.counter_at(place),
            _ => return Ok(n),
        };
        let Some(counter) = counter else {
            return match self.context.probes.mode {
                Mode::Blocks => fail(a, Fault::NoProbe(Kind::Block)),
                _ => Ok(n),
            };
        };
        let start = self.skip_padding(a, n);
        let end = self.probe(a, n, Kind::Block)?;
        let stretch = self.stretch_at(start).map(|i| &mut self.s.stretches[i]);
        match stretch.filter(|s| s.counter == counter) {
            Some(stretch) => {
                stretch.leaving = matches!(place, Place::Leaving(_));
                Ok(end)
            }
            None => fail(a, Fault::Counter),
        }
    }

    /// What the probe at the function's entry should be.
    pub(crate) fn entry_kind(&self) -> Option<Kind> {
        let probes = self.context.probes;
        let arguments = self.arguments();
        match probes.mode {
            Mode::Count if self.passed => Some(Kind::CountPass),
            Mode::Count => Some(Kind::CountEntry),
            Mode::Cpu => Some(Kind::Enter(arguments.at_entry())),
            Mode::Events if !arguments.is_none() => Some(Kind::Enter(arguments.at_entry())),
            Mode::Time | Mode::Events => Some(Kind::TimedEntry(probes.depth.limit())),
            Mode::Sample => Some(Kind::SampleEntry),
            Mode::User => self.user_probe(Moment::Enters),
            Mode::Locks => Some(Kind::LockEnter),
            Mode::Blocks | Mode::Edges | Mode::Plain => None,
        }
    }

    /// What a probe before an exit should be, which `returns` or goes on elsewhere.
    pub(crate) fn exit_kind(&self, returns: bool) -> Option<Kind> {
        let probes = self.context.probes;
        let arguments = self.arguments();
        let limited = probes.depth.limit() != NO_ROOM_FROM;
        match probes.mode {
            Mode::Count if self.passed => None,
            Mode::Count => Some(Kind::CountExit),
            Mode::Cpu => Some(Kind::Leave(arguments.at_exit(returns))),
            Mode::Events if !arguments.is_none() => Some(Kind::Leave(arguments.at_exit(returns))),
            Mode::Time => Some(Kind::TimeExit { limited }),
            Mode::Events => Some(Kind::EventsExit { limited }),
            Mode::Sample => Some(Kind::SampleExit),
            Mode::User if returns => self.user_probe(Moment::Returns),
            Mode::User => self.user_probe(Moment::TailCalls),
            Mode::Locks => returns.then_some(Kind::LockLeave),
            Mode::Blocks | Mode::Edges | Mode::Plain => None,
        }
    }

    /// The user probe, as a call.
    pub(crate) fn user_probe(&self, moment: Moment) -> Option<Kind> {
        user_call(self.context.probes.user_probe?, moment).map(Kind::UserCall)
    }

    /// What is to be recorded of the function's arguments.
    pub(crate) fn arguments(&self) -> Arguments {
        let entry = self.claim.function.entry;
        self.context.probes.arguments.get(&entry).copied().unwrap_or_default()
    }
}
