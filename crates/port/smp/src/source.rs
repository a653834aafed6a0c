//! The module's source text, and its build by the kernel's own build system.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// The files, by their names in `runtime/appkernel`.
const FILES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Where built modules are kept.
const KEPT: &str = "/var/lib/fettle/smp";

/// Name of the built module.
pub const MODULE: &str = "fettle-smp.ko";

/// Where the module for a kernel is kept.
pub fn kept(release: &str) -> PathBuf {
    Path::new(KEPT).join(release).join(MODULE)
}

/// Writes the source text to a folder.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(folder: &Path) -> Result<(), Error> {
    for (name, text) in FILES {
        let path = folder.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(why) = made.and_then(|()| std::fs::write(&path, text)) {
            return Err(Error::File { path, why });
        }
    }
    Ok(())
}

/// Builds the module in a folder that [`write()`] has filled, with the build folder of a kernel, which
/// its package of headers has. Gives the module's path.
///
/// # Errors
///
/// With what the compiler said.
pub fn build(folder: &Path, kernel_build: &Path) -> Result<PathBuf, Error> {
    if !kernel_build.join("Makefile").exists() {
        return Err(Error::Command {
            what: "building the module".to_string(),
            why: format!(
                "{} has no kernel headers: install those of this kernel (on Debian, \
                 linux-headers-amd64)",
                kernel_build.display()
            ),
        });
    }
    let build = format!("BUILD={}", kernel_build.display());
    run(Command::new("make").arg("-C").arg(folder).arg(build))?;
    Ok(folder.join(MODULE))
}

/// Runs a command; its output says why it failed.
pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let what = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|why| Error::Command { what: what.clone(), why: why.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n");
    Err(Error::Command { what, why: format!("{}\n{last}", output.status) })
}
