//! A MariaDB server of our own, in a folder, on a UNIX socket, under the load of sysbench.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::proc;

/// Packages that it takes.
pub const PACKAGES: [&str; 3] = ["mariadb-server", "mariadb-client", "sysbench"];

/// The server and its load.
pub struct Loaded {
    /// The server.
    pub server: Child,
    /// sysbench.
    pub load: Child,
    /// A command that prints how many statements were answered.
    pub work: String,
}

/// Starts a server on a new database in `folder`, which is emptied, and reads from it without an
/// end.
pub fn start(folder: &Path) -> Result<Loaded> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    proc::step(Command::new("chown").arg("mysql").arg(folder))?;
    let data = format!("--datadir={}", folder.join("data").display());
    let socket = folder.join("socket");
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=mysql", "--auth-root-authentication-method=normal"]);
    proc::output_of(install.arg(&data))?;
    let mut server = Command::new("mariadbd");
    server.args(["--no-defaults", "--user=mysql", "--skip-networking", &data]);
    server.arg(format!("--socket={}", socket.display()));
    server.args(["--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=0"]);
    let log = std::fs::File::create(folder.join("log"))?;
    let mut server = server.stdout(Stdio::null()).stderr(log).spawn()?;
    let client = format!("mariadb -uroot -S {} -Ne", socket.display());
    let begun = Instant::now();
    let made = || {
        proc::output_of(
            Command::new("sh").args(["-c", &format!("{client} 'CREATE DATABASE sbtest'")]),
        )
    };
    while made().is_err() {
        let over = server.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(60);
        if over {
            let _ = server.kill();
        }
        ensure!(!over, "the server does not start: see {}/log", folder.display());
        std::thread::sleep(Duration::from_millis(100));
    }
    let sysbench = |more: &[&str]| {
        let mut sysbench = Command::new("sysbench");
        sysbench.args(["oltp_read_only", "--db-driver=mysql", "--mysql-user=root", "--tables=4"]);
        sysbench.args(["--table-size=20000", &format!("--mysql-socket={}", socket.display())]);
        sysbench.args(more).stdout(Stdio::null()).stderr(Stdio::null());
        sysbench
    };
    proc::step(&mut sysbench(&["prepare"]))?;
    let load = sysbench(&["--threads=2", "--time=0", "run"]).spawn()?;
    let work = format!("{client} \"SHOW GLOBAL STATUS LIKE 'Questions'\"");
    Ok(Loaded { server, load, work })
}
