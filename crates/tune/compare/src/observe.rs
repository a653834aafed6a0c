//! Observers in the kernel, attached to a system's processes while something is measured.

use fettle_kernel_events::{Hits, KernelError, Tally};

use crate::agent::Agent;
use crate::error::CompareError;
use crate::processes;
use crate::system::{Observer, System};
use crate::tracefs::{Place, Tracing};
use crate::why::Watch;

/// What observes a system; nothing, for most.
#[derive(Debug)]
pub(crate) enum Observing {
    Nothing,
    Calls,
    Events(Box<Watch>),
    Uprobe,
    Traced(Tracing),
}

impl Observing {
    /// Makes ready what observes that system.
    ///
    /// # Errors
    ///
    /// In words, when the user may not or the kernel cannot.
    pub(crate) fn of(system: &System) -> Result<Observing, String> {
        let refused = |error: CompareError| match error {
            CompareError::Kernel(error) => error.to_string(),
            other => other.to_string(),
        };
        Ok(match system {
            System::Observed(Observer::Calls) => {
                // Tries whether it is possible.
                drop(Tally::new().map_err(|error| error.to_string())?);
                Observing::Calls
            }
            System::Observed(Observer::Events) => {
                Observing::Events(Box::new(Watch::new().map_err(refused)?))
            }
            System::Observed(Observer::Uprobe) => Observing::Uprobe,
            System::Observed(Observer::Ftrace(traced)) => Observing::Traced(Tracing::new(*traced)?),
            _ => Observing::Nothing,
        })
    }

    /// Does something while the system is observed: an operation, if it has a name. The observer is attached to
    /// nothing before and afterwards, so that other systems are not slower for it.
    pub(crate) fn during<T>(
        &mut self,
        agent: &mut Agent<'_>,
        operation: Option<&str>,
        work: impl FnOnce(&mut Agent<'_>) -> Result<T, CompareError>,
    ) -> Result<T, CompareError> {
        let broken = |agent: &Agent<'_>, why: String| CompareError::Broken {
            system: agent.system().to_string(),
            why,
        };
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
            Observing::Uprobe => {
                let place = place(agent, operation)?;
                let hits = Hits::at(&place.file, place.offset)
                    .map_err(|error: KernelError| broken(agent, error.to_string()))?;
                let worked = work(agent)?;
                match hits.total()? {
                    0 => Err(broken(agent, "the probe was never executed".to_owned())),
                    _ => Ok(worked),
                }
            }
            Observing::Traced(tracing) => {
                // Where it is not known, that is only needed by some.
                let place = place(agent, operation).ok();
                let pids = processes::tree(agent.pid());
                let worked = tracing.during(pids.into_iter(), place.as_ref(), || work(agent));
                worked.map_err(|why| broken(agent, why))?
            }
        }
    }
}

/// Where the operations of a benchmark pass.
fn place(agent: &mut Agent<'_>, operation: Option<&str>) -> Result<Place, CompareError> {
    let Some(operation) = operation else {
        let why = "a program of yours has no function that is known to be probed".to_owned();
        return Err(CompareError::Broken { system: agent.system().to_string(), why });
    };
    let (address, call) = agent.passage(operation)?;
    let (file, offset) = processes::mapped(agent.pid(), address).ok_or_else(|| {
        let why = format!("no file is mapped at {address:#x}");
        CompareError::Broken { system: agent.system().to_string(), why }
    })?;
    Ok(Place { file, offset, handler: format!("__x64_sys_{call}") })
}
