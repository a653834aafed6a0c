//! A PostgreSQL cluster of our own, in a folder, on a UNIX socket, as the user that its package has.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::proc;

/// Packages that it takes.
pub const PACKAGES: [&str; 1] = ["postgresql"];
/// Its socket's port, the same for all: each has its socket in a folder of its own.
pub const PORT: &str = "17499";

/// A cluster that runs; it ends with this.
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    server: Child,
}

impl Cluster {
    /// Makes a cluster in `folder`, which is emptied, and starts it.
    pub fn start(folder: &Path) -> Result<Cluster> {
        let programs = programs().context("PostgreSQL has no programs in /usr/lib/postgresql")?;
        let server = programs.join("postgres");
        empty(folder)?;
        Cluster::start_by(folder, (programs, server))
    }

    /// The same with a copy of the server's program, by whose path its processes can be told from those
    /// of others. It finds its files relative to that: the copy is below `lib`, as the original is.
    pub fn start_copy(folder: &Path) -> Result<Cluster> {
        let programs = programs().context("PostgreSQL has no programs in /usr/lib/postgresql")?;
        empty(folder)?;
        let above = programs.parent().context("programs below a version")?;
        let version = above.file_name().context("a version")?;
        let own = folder.join("copy/lib/postgresql").join(version);
        std::fs::create_dir_all(own.join("bin"))?;
        std::fs::copy(programs.join("postgres"), own.join("bin/postgres"))?;
        std::os::unix::fs::symlink(above.join("lib"), own.join("lib"))?;
        std::fs::create_dir_all(folder.join("copy/share"))?;
        std::os::unix::fs::symlink("/usr/share/postgresql", folder.join("copy/share/postgresql"))?;
        let server = own.join("bin/postgres");
        Cluster::start_by(folder, (programs, server))
    }

    fn start_by(folder: &Path, (programs, program): (PathBuf, PathBuf)) -> Result<Cluster> {
        proc::step(Command::new("chown").arg("postgres").arg(folder))?;
        let data = folder.join("data");
        let mut init = as_postgres(&programs.join("initdb"));
        init.current_dir(folder).args(["-A", "trust", "-D"]).arg(&data);
        proc::output_of(&mut init)?;
        let mut server = as_postgres(&program);
        server.current_dir(folder).arg("-D").arg(&data).args(["-p", PORT, "-k"]).arg(folder);
        for setting in ["listen_addresses=", "fsync=off", "jit=off", "shared_buffers=128MB"] {
            server.args(["-c", setting]);
        }
        let log = std::fs::File::create(folder.join("log"))?;
        let server = server.stdout(Stdio::null()).stderr(log).spawn()?;
        let mut cluster = Cluster { folder: folder.to_owned(), programs, server };
        let begun = std::time::Instant::now();
        while cluster.query("select 1").is_err() {
            let ended = cluster.server.try_wait()?.is_some() || begun.elapsed().as_secs() > 60;
            ensure!(!ended, "the server does not start: see {}/log", folder.display());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Ok(cluster)
    }

    /// The process that all others were forked from.
    pub fn postmaster(&self) -> Result<i32> {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid"))?;
        Ok(file.lines().next().context("an empty postmaster.pid")?.parse()?)
    }

    /// What a query answers.
    pub fn query(&self, sql: &str) -> Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h").arg(&self.folder).args(["-p", PORT, "-U", "postgres", "-AtXc", sql]);
        Ok(proc::output_of(&mut psql)?.trim().to_owned())
    }

    /// `pgbench` with these arguments.
    pub fn pgbench(&self, arguments: &[&str]) -> Command {
        let mut bench = as_postgres(&self.programs.join("pgbench"));
        bench.current_dir(&self.folder).arg("-h").arg(&self.folder);
        bench.args(["-p", PORT, "-n"]).args(arguments).arg("postgres");
        bench
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGQUIT: all processes end at once.
        if let Ok(pid) = self.postmaster() {
            let _ = proc::step(Command::new("kill").args(["-QUIT", &pid.to_string()]));
        }
        let _ = self.server.wait();
    }
}

fn empty(folder: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    Ok(std::fs::create_dir_all(folder)?)
}

/// It refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| {
        use std::os::unix::fs::MetadataExt;
        meta.uid() == 0
    });
    match is_root {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
            command
        }
        false => Command::new(program),
    }
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|bin| bin.join("postgres").exists()).max()
}
