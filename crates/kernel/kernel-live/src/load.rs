//! Loading the module, and removing it.

use std::ffi::CString;
use std::time::Duration;

use fettle_kernel_image::Image;
use fettle_kernel_plan::Plan;
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, delete_module, init_module};

use crate::check;
use crate::control::{Installed, State};
use crate::core_object::Core;
use crate::error::{Error, Result};
use crate::journal::{Journal, Purpose};
use crate::kernel::Kernel;
use crate::module::{self, MOST_PER_CPU, Module, Placed};

/// How long threads may take to leave rewritten text before that is an error.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Loads the module of a plan for the running kernel. Nothing leads to its text yet. Gives the client and
/// where what is in the plan is.
///
/// # Errors
///
/// When this kernel is not supported or does not take the module: it is unmodified then.
pub fn load(plan: &Plan, image: &Image) -> Result<(Installed, Placed)> {
    check::check(image)?;
    if plan.release != image.release {
        let what = format!("the plan is for {}, and {} runs here", plan.release, image.release);
        return Err(Error::Unfit(what));
    }
    drop_idle()?;
    let core = Core::new();
    let needed = core.needed().filter(|name| !module::DEFINED.contains(name));
    let kernel = Kernel::find(&image.release, image, &image.types, needed)?;
    let mut per_cpu = MOST_PER_CPU;
    loop {
        let made = module::write(plan, &kernel, &core, per_cpu)?;
        match init_module(&made.bytes, &CString::default()) {
            Ok(()) => {
                let installed = Installed::open()?;
                return Ok((installed, made.placed));
            }
            // Other modules may use what is set aside for per-CPU variables.
            Err(Errno::ENOMEM) if made.per_cpu > 0 => per_cpu = made.per_cpu / 2,
            Err(error) => return Err(refused(error, &made)),
        }
    }
}

/// Loads and writes the jumps, and notes it in the journal.
///
/// # Errors
///
/// As [`load`], and when an original has changed since the plan was made: the module is removed again.
pub fn install(plan: &Plan, image: &Image, purpose: Purpose) -> Result<(Installed, Placed)> {
    let (mut installed, placed) = load(plan, image)?;
    Journal::new(plan, purpose).write()?;
    let name = |address: u64| name_at(plan, address);
    match installed.write_jumps(&name) {
        Ok(_) => Ok((installed, placed)),
        Err(error) => {
            remove(installed)?;
            Err(error)
        }
    }
}

/// The function of the plan that an address lies in.
fn name_at(plan: &Plan, address: u64) -> String {
    let found = plan.functions.iter().find(|f| {
        address.checked_sub(f.original).is_some_and(|distance| distance < u64::from(f.size))
    });
    found.map_or_else(|| format!("{address:#x}"), |f| f.name.clone())
}

/// Undoes everything and removes the module.
///
/// # Errors
///
/// When threads are still in rewritten text: it stays in memory, though no jump leads to it.
pub fn remove(mut installed: Installed) -> Result<()> {
    installed.undo(PATIENCE)?;
    drop(installed);
    unload()
}

/// Removes the module that an earlier fettle left without use.
fn drop_idle() -> Result<()> {
    match Installed::open() {
        Err(Error::NotLoaded) => Ok(()),
        Err(error) => Err(error),
        Ok(installed) => match installed.status()?.state {
            State::Installed => Err(Error::Loaded),
            State::Out | State::Leaving => remove(installed),
        },
    }
}

/// Removes the module, whose core undoes what is left to undo.
///
/// # Errors
///
/// When it is not there, or in use.
pub fn unload() -> Result<()> {
    let name = CString::new(module::NAME).expect("it has no zero byte");
    match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Journal::forget(),
        Err(Errno::ENOENT) => Err(Error::NotLoaded),
        Err(error) => Err(Error::Load(format!("it cannot be removed ({})", error.desc()))),
    }
}

fn refused(error: Errno, made: &Module) -> Error {
    Error::Load(match error {
        Errno::EPERM => {
            "loading modules is not permitted here (capabilities, seccomp or a container)"
                .to_string()
        }
        Errno::EKEYREJECTED | Errno::ENOKEY => "it loads signed modules only".to_string(),
        Errno::EEXIST => "a module of that name is loaded already".to_string(),
        Errno::ENOMEM => format!("it has no memory for {} bytes", made.bytes.len()),
        other => format!("{} (its log, dmesg, says more)", other.desc()),
    })
}
