//! Observers in the kernel, attached to a system's processes while something is measured.

use fettle_kernel_events::Tally;

use crate::agent::Agent;
use crate::error::CompareError;
use crate::processes;
use crate::system::{Observer, System};
use crate::why::Watch;

/// What observes a system; nothing, for most.
#[derive(Debug)]
pub(crate) enum Observing {
    Nothing,
    Calls,
    Events(Box<Watch>),
}

impl Observing {
    /// Makes ready what observes that system.
    ///
    /// # Errors
    ///
    /// When the kernel's events cannot be had.
    pub(crate) fn of(system: &System) -> Result<Observing, CompareError> {
        Ok(match system {
            System::Observed(Observer::Calls) => {
                // Tries whether it is possible.
                drop(Tally::new()?);
                Observing::Calls
            }
            System::Observed(Observer::Events) => Observing::Events(Box::new(Watch::new()?)),
            _ => Observing::Nothing,
        })
    }

    /// Does something while the system is observed. The observer is attached to nothing before and afterwards,
    /// so that other systems are not slower for it.
    pub(crate) fn during<T>(
        &mut self,
        agent: &mut Agent<'_>,
        work: impl FnOnce(&mut Agent<'_>) -> Result<T, CompareError>,
    ) -> Result<T, CompareError> {
        match self {
            Observing::Nothing => work(agent),
            Observing::Calls => {
                let tally = Tally::new()?;
                for pid in processes::tree(agent.pid()) {
                    tally.watch(pid)?;
                }
                work(agent)
            }
            Observing::Events(watch) => {
                let pid = agent.pid();
                Ok(watch.during(pid, || work(agent))?.0)
            }
        }
    }
}
