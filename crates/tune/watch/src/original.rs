//! How a process was started, so that another one can be started in the same way.
//!
//! What cannot be known for certain is a reason not to: a server that is started with other settings than it had is
//! worse than one that hangs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fettle_live::{Launch, SpareStart, User};
use fettle_types::Pid;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::proc::Watched;
use crate::servers;
use crate::threads::{field, mask, number};
use crate::unread::sockets;

/// Namespaces in which another process has to be, too.
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// How to start a process like this one, with its sockets.
///
/// # Errors
///
/// Why that is not known, or would not do.
pub(crate) fn of(process: &Watched) -> Result<SpareStart, String> {
    let pid = process.id.pid;
    if process.is_worker {
        return Err("it is a worker: its parent starts another (`restart kill`)".into());
    }
    let text = |name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/{name}"));
        text.map_err(|error| format!("/proc/{pid}/{name}: {error}"))
    };
    has_no_supervisor(process, &text("cgroup")?)?;
    for namespace in NAMESPACES {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}")).ok();
        if of(&pid.to_string()) != of("self") {
            return Err(format!("it is in another namespace ({namespace}), as in a container"));
        }
    }
    if fs::read_link(format!("/proc/{pid}/root")).ok() != Some(PathBuf::from("/")) {
        return Err("it has another root directory".into());
    }
    let status = text("status")?;
    let listeners = listeners(process)?;
    let handle = process.handle.as_ref().ok_or("it may not be looked at")?;
    let standard = [0, 1, 2].map(|at| pidfd_getfd(handle, at, PidfdGetfdFlags::empty()).ok());
    let umask = field(&status, "Umask:").and_then(|mask| u32::from_str_radix(mask, 8).ok());
    let ignored = mask(&status, "SigIgn:");
    Ok(SpareStart {
        launch: launch(pid, &text("stat")?)?,
        standard,
        listeners,
        user: user(&status)?,
        umask: umask.ok_or("its umask is not known")?,
        ignored: ignored.unwrap_or(0),
        like: pid,
    })
}

/// What starts it again when it has ended would compete with a spare.
fn has_no_supervisor(process: &Watched, cgroup: &str) -> Result<(), String> {
    let unit = cgroup.lines().find_map(|line| {
        let name = line.rsplit('/').next()?;
        name.ends_with(".service").then(|| name.to_owned())
    });
    if let Some(unit) = unit {
        return Err(format!(
            "systemd starts it again ({unit}): `run \"systemctl restart {unit}\"`"
        ));
    }
    let parent = process.parent.filter(|parent| *parent != Pid::own());
    let name = parent.and_then(|parent| fs::read_to_string(format!("/proc/{parent}/comm")).ok());
    match name.as_deref().map(str::trim_end).filter(|name| servers::supervises(name)) {
        Some(name) => Err(format!("its parent ({name}) starts it again, or ends with it")),
        None => Ok(()),
    }
}

/// Its sockets that listen on TCP.
fn listeners(process: &Watched) -> Result<Vec<TcpListener>, String> {
    let handle = process.handle.as_ref().ok_or("it may not be looked at")?;
    let mut listeners = Vec::new();
    for socket in sockets(process.id.pid) {
        let copy = match pidfd_getfd(handle, socket.descriptor, PidfdGetfdFlags::empty()) {
            Ok(copy) => copy,
            // Closed since.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(format!("its sockets cannot be had: {error}")),
        };
        if !sockopt::socket_acceptconn(&copy).unwrap_or(false) {
            continue;
        }
        let is_stream = sockopt::socket_type(&copy).is_ok_and(|kind| kind == SocketType::STREAM);
        match sockopt::socket_domain(&copy) {
            Ok(AddressFamily::INET | AddressFamily::INET6) if is_stream => {
                listeners.push(TcpListener::from(copy));
            }
            Ok(AddressFamily::UNIX) => {
                return Err(
                    "it listens on a UNIX socket, whose path a second process would take".into()
                );
            }
            _ => return Err("it listens on a socket that is not TCP".into()),
        }
    }
    match listeners.is_empty() {
        true => Err("it does not listen on TCP".into()),
        false => Ok(listeners),
    }
}

/// Its program, arguments, environment and directory.
fn launch(pid: Pid, stat: &str) -> Result<Launch, String> {
    let link = |name: &str| {
        let path = fs::read_link(format!("/proc/{pid}/{name}"));
        let path = path.map_err(|error| format!("/proc/{pid}/{name}: {error}"))?;
        match path.to_string_lossy().ends_with(" (deleted)") {
            true => Err(format!("{} is not there any more", path.display())),
            false => Ok(path),
        }
    };
    let strings = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}"));
        split(&bytes.map_err(|error| format!("/proc/{pid}/{name}: {error}"))?).ok_or_else(|| {
            format!("it has overwritten what it was started with (/proc/{pid}/{name})")
        })
    };
    let arguments = strings("cmdline")?;
    if argument_count(pid, stat) != Some(arguments.len() as u64) {
        return Err("it has overwritten its arguments, as with a title".into());
    }
    let environment = strings("environ")?;
    let variable = |entry: OsString| {
        let bytes = entry.into_vec();
        // A name may begin with `=`, if nothing else.
        let at = bytes.iter().skip(1).position(|byte| *byte == b'=')? + 1;
        let (name, value) = (bytes[..at].to_vec(), bytes[at + 1..].to_vec());
        Some((OsString::from_vec(name), OsString::from_vec(value)))
    };
    let environment: Option<Vec<_>> = environment.into_iter().map(variable).collect();
    let environment = environment.ok_or("it has overwritten its environment")?;
    if environment.iter().any(|(name, _)| name == "LISTEN_FDS") {
        return Err("it was given its sockets when it was started (LISTEN_FDS)".into());
    }
    let mut arguments = arguments.into_iter();
    let name = arguments.next().ok_or("it has no arguments")?;
    Ok(Launch {
        program: link("exe")?.into_os_string(),
        args: arguments.collect(),
        env: Some(environment),
        cwd: Some(link("cwd")?),
        name: Some(name),
    })
}

/// How many arguments it was started with: the word that its stack began with, which programs leave unmodified when they
/// give themselves a title.
fn argument_count(pid: Pid, stat: &str) -> Option<u64> {
    // The name, in parentheses, may hold any character. The stack's beginning is the 28th field.
    let rest = stat.get(stat.rfind(')')? + 2..)?;
    let start: u64 = rest.split_ascii_whitespace().nth(25)?.parse().ok()?;
    let mut word = [0; 8];
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut word, start).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// Strings that end in a zero byte each; none if the last does not.
fn split(bytes: &[u8]) -> Option<Vec<OsString>> {
    let strings = match bytes {
        [] => return Some(Vec::new()),
        [strings @ .., 0] => strings,
        _ => return None,
    };
    Some(strings.split(|byte| *byte == 0).map(|part| OsStr::from_bytes(part).to_owned()).collect())
}

/// Its user, if that is not ours.
fn user(status: &str) -> Result<Option<User>, String> {
    let ids = |name: &str| -> Option<Vec<u32>> {
        field(status, name)?.split_ascii_whitespace().map(|id| id.parse().ok()).collect()
    };
    let one = |name: &str| match ids(name)?[..] {
        [real, effective, saved, of_files] => {
            (real == effective && real == saved && real == of_files).then_some(real)
        }
        _ => None,
    };
    let same = "it has several users or groups at a time";
    let (uid, gid) = (one("Uid:").ok_or(same)?, one("Gid:").ok_or(same)?);
    if number(status, "Seccomp:").is_some_and(|mode| mode != 0) {
        return Err("it has a filter of system calls, which may be of what has started it".into());
    }
    let groups = ids("Groups:").ok_or("its groups are not known")?;
    if rustix::process::geteuid().as_raw() == uid {
        return Ok((uid == 0).then_some(User { uid, gid, groups }));
    }
    if mask(status, "CapEff:") != Some(0) {
        return Err("it has capabilities that another user's processes do not get".into());
    }
    Ok(Some(User { uid, gid, groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_in_a_zero_byte() {
        assert_eq!(
            split(b"node\0--port\0\0"),
            Some(vec!["node".into(), "--port".into(), "".into()])
        );
        assert_eq!(split(b""), Some(Vec::new()));
        assert_eq!(split(b"server: idle"), None, "a title");
    }

    #[test]
    fn users_are_read() {
        let status =
            "Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 9 \nCapEff:\t0000\nSeccomp:\t0\n";
        let user7 = User { uid: 7, gid: 8, groups: vec![8, 9] };
        assert_eq!(user(status), Ok(Some(user7)));
        for (what, other) in
            [("\t7\t7\n", "\t7\t9\n"), ("Seccomp:\t0", "Seccomp:\t2"), ("0000", "0400")]
        {
            assert!(user(&status.replace(what, other)).is_err(), "{other}");
        }
    }

    #[test]
    fn this_process_has_as_many_arguments_as_it_was_started_with() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let count = argument_count(Pid::own(), &stat);
        assert_eq!(count, Some(std::env::args_os().len() as u64));
        let launch = launch(Pid::own(), &stat).unwrap();
        assert_eq!(launch.args.len() + 1, std::env::args_os().len());
        assert_eq!(launch.cwd, std::env::current_dir().ok());
    }
}
