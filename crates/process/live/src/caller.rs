//! System calls that a running process makes for us.
//!
//! One thread makes them, while the others run. A few instructions are written into padding: the
//! zeros that fill up the last page of executable code. The thread's PC is set there, with the
//! call's number and arguments in its registers, and the thread is stopped when the call is done.
//!
//! Should Fettle be killed in between, the thread runs on from there: behind the call is a restore
//! stub ([`restore_stub`](crate::restore_stub)), which restores its state and resumes it where it
//! was; a system call that it was in is restarted. Signals are blocked meanwhile, and delivered
//! afterwards.

use std::io;
use std::time::Duration;

use fettle_types::Pid;
use libc::c_long;

use crate::entry::{Entry, Region};
use crate::error::LiveError;
use crate::journal::Journal;
use crate::maps::{LiveAddr, Mapping};
use crate::memory::Memory;
use crate::parked::nothing;
use crate::pause::{PauseBudget, Paused, Who};
use crate::process::{Process, has_shadow_stacks};
use crate::ptrace::{self, Registers, What};
use crate::remote::padding_at_end;
use crate::restore_stub::{self, Place};
use crate::thread::Thread;

/// A system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemCall {
    /// For messages.
    pub action: &'static str,
    pub number: c_long,
    pub arguments: [u64; 6],
}

/// The results of calls.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The results of the calls that were made, in order.
    pub results: Vec<u64>,
    /// Why the next one failed; it may have been made, unless this is [`LiveError::Remote`].
    pub error: Option<LiveError>,
    /// How long a thread was paused, each time.
    pub stops: Vec<Duration>,
}

/// How often another thread is tried: one may be briefly where it cannot make calls.
const TRIES: usize = 50;

impl Process {
    /// Has the process make system calls, one after another, until one fails. One thread makes them
    /// while the others run, in as many short stops of that thread as it takes. The instructions do
    /// not lie in `avoided` memory.
    ///
    /// # Errors
    ///
    /// When it cannot make any; not if one fails.
    pub(crate) fn make_calls(
        &self,
        journal: &mut Journal,
        avoided: &[Region],
        calls: &[SystemCall],
    ) -> Result<Made, LiveError> {
        let mut made = Made::default();
        if calls.is_empty() {
            return Ok(made);
        }
        let pid = self.pid();
        let maps = self.maps()?;
        let outside = |m: &Mapping| !avoided.iter().any(|r| m.contains(r.at));
        let maps: Vec<Mapping> = maps.into_iter().filter(outside).collect();
        let place = find_place(self, &maps).ok_or_else(|| {
            let why = "it has no room for a few instructions of ours".to_owned();
            LiveError::Unattachable { pid, why }
        })?;
        journal.add([Entry::Code(place.at, place.len)])?;
        let mut tries = 0;
        while made.results.len() < calls.len() && made.error.is_none() {
            let left = &calls[made.results.len()..];
            match self
                .pause_in_thread(Who::One, &mut nothing, |paused| paused.make_calls(place, left))
            {
                Ok(((results, error), stop)) => {
                    made.results.extend(results);
                    made.error = error;
                    made.stops.push(stop);
                }
                Err(LiveError::Busy { .. }) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => made.error = Some(error),
            }
        }
        // It stays in the log if something may be there.
        if self.read(place.at, place.len).is_ok_and(|bytes| is_empty(&bytes)) {
            journal.add([Entry::Cleared(place.at)])?;
        }
        match made.error.take_if(|error| made.results.is_empty() && !is_answer(error)) {
            Some(error) => Err(error),
            None => Ok(made),
        }
    }
}

impl Paused<'_> {
    /// Has a thread make calls by instructions at a place, until one fails or it was paused for
    /// long. Returns the results of those that it made.
    fn make_calls(
        &mut self,
        place: Place,
        calls: &[SystemCall],
    ) -> Result<(Vec<u64>, Option<LiveError>), LiveError> {
        let process = self.process;
        let pid = process.pid();
        let memory = &process.memory;
        let busy = |why: &str| LiveError::Busy { pid, why: why.to_owned() };
        // A thread in a system call is in no restartable sequence.
        let usable = |t: &&Thread| t.is_in_call() || !is_in_sequence(memory, t);
        let thread =
            self.threads.iter().find(usable).ok_or_else(|| busy("its threads are busy"))?;
        let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
        let tid = thread.tid;
        let blocked = ptrace::blocked_signals(tid).map_err(failed("read the signal mask"))?;
        let floating =
            ptrace::floating_point(tid).map_err(failed("read the floating-point state"))?;
        let code = restore_stub::code(place, thread, blocked, &floating);
        if !is_empty(&memory.read(place.at, place.len)?) {
            return Err(busy("another tool writes to its code"));
        }
        if process.filtered {
            let options = ptrace::O_SYSGOOD | ptrace::O_SUSPEND_SECCOMP;
            ptrace::set_options(tid, options)
                .map_err(|_| LiveError::Seccomp { pid, filters: 1 })?;
        }
        memory.write(place.at, &code)?;
        let (mut results, mut stopped) = (Vec::new(), false);
        let budget = PauseBudget::begin();
        // From the first call to the last, with signals blocked, it is where the restore stub would
        // resume it.
        let result = (|| {
            let away = led_to(thread, place.at.offset(restore_stub::CALL));
            ptrace::set_registers(tid, &away).map_err(failed("set the registers"))?;
            ptrace::set_blocked_signals(tid, !0).map_err(failed("set the signal mask"))?;
            for call in calls {
                let result = make(thread, place.at, call, pid, &mut stopped)?;
                if result < 0 {
                    let source = io::Error::from_raw_os_error(-result as i32);
                    let (action, address) = (call.action, call.arguments[0]);
                    return Ok(Some(LiveError::Remote { action, pid, address, source }));
                }
                results.push(result as u64);
                if budget.is_over() {
                    break;
                }
            }
            Ok(None)
        })();
        let back = (|| {
            ptrace::set_blocked_signals(tid, blocked).map_err(failed("restore the signal mask"))?;
            ptrace::set_registers(tid, &thread.registers)
                .map_err(failed("restore the registers"))?;
            memory.write(place.at, &vec![0; code.len()])
        })();
        if process.filtered {
            let _ = ptrace::set_options(tid, ptrace::O_SYSGOOD);
        }
        if stopped {
            // The SIGSTOP is delivered when the thread is detached.
            let _ = ptrace::tgkill(pid, tid, libc::SIGSTOP);
        }
        // Calls that were made count as made, whatever fails then.
        Ok((results, result.unwrap_or_else(Some).or(back.err())))
    }
}

fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether an error is the result of a call.
pub(crate) fn is_answer(error: &LiveError) -> bool {
    matches!(error, LiveError::Remote { .. })
}

/// The registers of a thread that is resumed at `at`, in no system call.
fn led_to(thread: &Thread, at: LiveAddr) -> Registers {
    // The kernel must not restart a call.
    Registers { rip: at.0, orig_rax: u64::MAX, ..thread.registers }
}

/// Has a thread make one call; returns its result. `stopped` is set if the thread was sent SIGSTOP,
/// which is held back.
fn make(
    thread: &Thread,
    at: LiveAddr,
    call: &SystemCall,
    pid: Pid,
    stopped: &mut bool,
) -> Result<i64, LiveError> {
    let tid = thread.tid;
    let [rdi, rsi, rdx, r10, r8, r9] = call.arguments;
    let rax = call.number as u64;
    let registers = Registers { rax, rdi, rsi, rdx, r10, r8, r9, ..led_to(thread, at) };
    let failed = |action| move |source| LiveError::Ptrace { action, pid, source };
    ptrace::set_registers(tid, &registers).map_err(failed("set the registers"))?;
    // Once at its beginning, once at its end.
    let mut stops = 0;
    while stops < 2 {
        ptrace::cont_to_system_call(tid).map_err(failed("go on with a thread"))?;
        let report = loop {
            match ptrace::peek(Some(tid), true) {
                Ok(report) => break report,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(LiveError::Os { action: "wait for a thread", source }),
            }
        };
        let Some(What::Stopped { signal, event }) = report.map(|report| report.what) else {
            return Err(LiveError::Gone { pid });
        };
        if !ptrace::take_stop(tid) {
            return Err(LiveError::Gone { pid });
        }
        match (signal, event) {
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => stops += 1,
            // It cannot be blocked.
            (libc::SIGSTOP, 0) => *stopped = true,
            // Another thread was sent it. The kernel remembers that.
            (_, ptrace::EVENT_STOP) => {}
            (signal, _) => {
                let why = format!("signal {signal} came from code of ours");
                return Err(LiveError::Unattachable { pid, why });
            }
        }
    }
    Ok(ptrace::registers(tid).map_err(failed("read the registers"))?.rax as i64)
}

/// Whether a thread is in a restartable sequence (rseq), which the kernel would abort at the next
/// preemption: it must find the thread there.
fn is_in_sequence(memory: &Memory, thread: &Thread) -> bool {
    let Some(area) = ptrace::rseq_area(thread.tid) else { return false };
    let word = |at: u64| -> Option<u64> {
        let mut bytes = [0; 8];
        memory.read_exact(LiveAddr(at), &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    // struct rseq: cpu_id_start, cpu_id, rseq_cs. struct rseq_cs: version, flags, start_ip,
    // post_commit_offset, abort_ip.
    let Some(sequence) = word(area + 8).filter(|at| *at != 0) else { return false };
    match (word(sequence + 8), word(sequence + 16)) {
        (Some(start), Some(len)) => thread.registers.rip.wrapping_sub(start) < len,
        _ => true,
    }
}

/// Where a call and its restore stub can be: one with a frame, if there is room for it.
fn find_place(process: &Process, maps: &[Mapping]) -> Option<Place> {
    let frames = !has_shadow_stacks(process.pid());
    [restore_stub::WITH_FRAME, restore_stub::WITHOUT_FRAME].into_iter().find_map(|len| {
        let at = find_padding(&process.memory, maps, len)?;
        Some(Place { at, len, frames })
    })
}

/// Room for `len` bytes of code: zeros at the end of a file's executable mapping.
fn find_padding(memory: &Memory, maps: &[Mapping], len: usize) -> Option<LiveAddr> {
    let is_code = |m: &&Mapping| m.executable && !m.writable && !m.shared && m.path.is_some();
    maps.iter().filter(is_code).find_map(|mapping| padding_at_end(memory, mapping, len))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    use super::*;
    use crate::process::state;

    /// Waits until a process is in this state.
    fn becomes(pid: Pid, wanted: u8) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        let path = format!("/proc/{pid}/status");
        while Instant::now() < deadline {
            if state(&std::fs::read(&path).unwrap()) == Some(wanted) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// A process that sleeps, and the beginning of its log in a new folder.
    fn sleeper() -> (Child, Process, tempfile::TempDir, Journal) {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::of_child(&child);
        assert!(becomes(pid, b'S'));
        let process = Process::open(pid).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::create(folder.path(), &process).unwrap();
        (child, process, folder, journal)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn code_of_others_where_a_call_of_ours_stood_is_left_unmodified() {
        let (child, process, _folder, mut journal) = sleeper();
        let maps = process.maps().unwrap();
        let ours = find_place(&process, &maps).unwrap();
        let mut code = vec![0; ours.len];
        code[..7].copy_from_slice(&[0x0f, 0x05, 0xb8, 14, 0, 0, 0]);
        process.fill(ours.at, &code).unwrap();
        let others = maps.iter().find(|m| m.executable && m.path.is_some()).unwrap().start;
        let before = process.read(others, 240).unwrap();
        assert!(!is_empty(&before));
        journal.add([Entry::Code(ours.at, ours.len), Entry::Code(others, 240)]).unwrap();
        crate::undo(journal, crate::Undoing::within(Duration::ZERO)).unwrap();
        assert!(is_empty(&process.read(ours.at, ours.len).unwrap()));
        assert_eq!(process.read(others, 240).unwrap(), before);
        end(child);
    }

    #[test]
    fn a_thread_that_is_sent_a_stop_meanwhile_stops_afterwards() {
        let (child, process, _folder, mut journal) = sleeper();
        let pid = process.pid();
        let call = |number, arguments| SystemCall { action: "be stopped", number, arguments };
        let stop =
            call(libc::SYS_kill, [u64::from(pid.unsigned()), libc::SIGSTOP as u64, 0, 0, 0, 0]);
        let next = call(libc::SYS_getpid, [0; 6]);
        let made = process.make_calls(&mut journal, &[], &[stop, next, next]).unwrap();
        assert!(made.error.is_none(), "{:?}", made.error);
        assert_eq!(made.results, [0, u64::from(pid.unsigned()), u64::from(pid.unsigned())]);
        assert!(becomes(pid, b'T'));
        // SAFETY: takes numbers only.
        unsafe { libc::kill(pid.get(), libc::SIGCONT) };
        assert!(becomes(pid, b'S'));
        // The results of calls before a failed one are known.
        let wrong = call(libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]);
        let made = process.make_calls(&mut journal, &[], &[next, wrong, next]).unwrap();
        assert_eq!(made.results, [u64::from(pid.unsigned())]);
        assert!(made.error.is_some_and(|error| is_answer(&error)));
        end(child);
    }
}
