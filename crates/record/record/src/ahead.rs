//! Rewritten text is made by threads of its own, while the tracing thread serves the program.
//!
//! To lift and rewrite a large file takes seconds. The thread that needs the rewritten text is stopped
//! for so long, as it must be; all other threads of the program run, their `clone` stops are answered
//! and their rings emptied. Files that are wanted at once, as all libraries of a program are at its
//! start, are rewritten in parallel.
//!
//! The jobs are rayon's, whose threads also share the work within a file.

use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What takes less is not reported.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the progress of a file is reported.
const PERIOD: Duration = Duration::from_millis(250);

/// Progress of rewriting a file for which a thread is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Preparing<'a> {
    /// A file that is not done, the one with most functions to go.
    pub path: &'a Path,
    /// Its functions that were rewritten, of all that are known; none is known until the file was
    /// lifted.
    pub functions: (usize, usize),
    /// Files that are not done.
    pub files: usize,
    /// Nothing was reported yet of those that are being made together.
    pub first: bool,
}

/// Notified of the progress of rewritten text that takes longer than a second; `None` when it is there.
pub type OnPreparing = fn(Option<Preparing<'_>>);

/// How far a file is.
#[derive(Debug, Default)]
pub struct Far {
    /// Functions that were lifted.
    pub all: AtomicUsize,
    /// Those that were rewritten, or are known to be left unmodified.
    pub done: AtomicUsize,
}

/// A file whose rewritten text is being made.
struct Job<T> {
    path: PathBuf,
    far: Arc<Far>,
    result: Receiver<thread::Result<T>>,
    /// What has come of it, until it is taken.
    made: Option<thread::Result<T>>,
}

impl<T> Job<T> {
    /// Looks whether it is done; waits so long for that.
    fn look(&mut self, patience: Duration) {
        if self.made.is_none() {
            self.made = self.result.recv_timeout(patience).ok();
        }
    }

    fn functions(&self) -> (usize, usize) {
        let load = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        (load(&self.far.done), load(&self.far.all))
    }
}

/// Files, by identity, whose rewritten text is being made, or is there and was not asked for yet.
pub(crate) struct Ahead<K, T> {
    jobs: HashMap<K, Job<T>>,
    notify: Option<OnPreparing>,
    /// Since when a thread waits, and when its progress was last reported.
    waiting: Option<(Instant, Option<Instant>)>,
}

impl<K: Copy + Eq + Hash, T: Send + 'static> Ahead<K, T> {
    /// Nothing yet; `tell` is notified of what takes long.
    pub(crate) fn new(notify: Option<OnPreparing>) -> Ahead<K, T> {
        Ahead { jobs: HashMap::new(), notify, waiting: None }
    }

    /// Begins to rewrite a file, unless that has begun.
    pub(crate) fn begin(
        &mut self,
        file: K,
        path: &Path,
        make: impl FnOnce(&Far) -> T + Send + 'static,
    ) {
        if self.jobs.contains_key(&file) {
            return;
        }
        let (give, result) = channel();
        let far = Arc::new(Far::default());
        let of_job = far.clone();
        rayon::spawn(move || {
            // The receiver may be gone.
            let _ = give.send(catch_unwind(AssertUnwindSafe(|| make(&of_job))));
        });
        self.jobs.insert(file, Job { path: path.to_owned(), far, result, made: None });
    }

    /// Whether a file that has begun could be had without waiting.
    pub(crate) fn is_ready(&mut self, file: K) -> bool {
        let Some(job) = self.jobs.get_mut(&file) else { return true };
        job.look(Duration::ZERO);
        let ready = job.made.is_some();
        if !ready {
            self.report_waiting();
        }
        ready
    }

    /// What has come of a file that has begun, as soon as it is there.
    pub(crate) fn take(&mut self, file: K) -> Option<T> {
        let made = loop {
            let job = self.jobs.get_mut(&file)?;
            job.look(PERIOD);
            if let Some(made) = job.made.take() {
                self.jobs.remove(&file);
                break made;
            }
            self.report_waiting();
        };
        if self.jobs.values().all(|job| job.made.is_some())
            && let Some((_, Some(_))) = self.waiting.take()
            && let Some(notify) = self.notify
        {
            notify(None);
        }
        match made {
            Ok(made) => Some(made),
            // A fault of ours is one, wherever it shows.
            Err(panic) => resume_unwind(panic),
        }
    }

    /// A thread waits: reports the progress, if that takes long and was not reported just now.
    fn report_waiting(&mut self) {
        let now = Instant::now();
        let (since, reported) = *self.waiting.get_or_insert((now, None));
        let due = match reported {
            None => now.duration_since(since) >= PATIENCE,
            Some(last) => now.duration_since(last) >= PERIOD,
        };
        let Some(notify) = self.notify.filter(|_| due) else { return };
        self.jobs.values_mut().for_each(|job| job.look(Duration::ZERO));
        let pending = self.jobs.values().filter(|job| job.made.is_none());
        let to_go = |job: &&Job<T>| job.functions().1.saturating_sub(job.functions().0);
        if let Some(job) = pending.clone().max_by_key(to_go) {
            let (path, functions, files) = (&*job.path, job.functions(), pending.count());
            notify(Some(Preparing { path, functions, files, first: reported.is_none() }));
            self.waiting = Some((since, Some(now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_keeps_nobody() {
        let file = 1;
        let mut ahead = Ahead::new(None);
        assert!(ahead.is_ready(file) && ahead.take(file).is_none(), "it has not begun");
        let (go, wait) = channel();
        ahead.begin(file, Path::new("a"), move |far| {
            far.all.store(7, Ordering::Relaxed);
            wait.recv().unwrap();
            "made"
        });
        assert!(!ahead.is_ready(file));
        ahead.begin(file, Path::new("a"), |_| panic!("it has begun"));
        go.send(()).unwrap();
        assert_eq!(ahead.take(file), Some("made"));
        assert!(ahead.is_ready(file), "nobody has to wait for what was taken");
    }
}
