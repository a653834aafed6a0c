//! The servers of the fleet: PostgreSQL, and PHP behind nginx, as Debian has them. Each runs a copy of its
//! program, by whose path rules can name it, and no other server of the machine is meant.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::clients;
use crate::attach::differing;
use crate::postgres::{self, Cluster};
use crate::proc::Group;

/// Packages that it takes.
pub const PACKAGES: [&str; 4] = ["postgresql", "php-fpm", "nginx", "prometheus"];

/// A server that is to be tuned.
#[derive(Clone, Debug)]
pub struct Server {
    /// The rule that means it.
    pub rule: &'static str,
    /// Its first process.
    pub pid: u32,
}

impl Server {
    /// A place of its code, in any of its processes, that is not what the file says.
    pub fn differing(&self) -> Result<Option<String>> {
        let list = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = std::fs::read_to_string(list)?;
        let own = self.pid.to_string();
        for pid in children.split_whitespace().chain([own.as_str()]) {
            match differing(pid) {
                Ok(Some(place)) => return Ok(Some(format!("{} {pid}: {place}", self.rule))),
                Ok(None) => {}
                // Connections come and go.
                Err(error) => ensure!(pid != own, "{error:#}"),
            }
        }
        Ok(None)
    }
}

/// All of them.
pub struct Fleet {
    /// The clusters of PostgreSQL.
    pub clusters: Vec<Cluster>,
    _http: Vec<Group>,
    /// The port of nginx.
    pub port: u16,
    /// Each server that a rule means, PostgreSQL's first.
    pub servers: Vec<Server>,
}

impl Fleet {
    /// Starts so many of each, in `folder`.
    pub fn start(folder: &Path, databases: usize, interpreters: usize) -> Result<Fleet> {
        let mut clusters = Vec::new();
        for number in 1..=databases {
            let cluster = Cluster::start_copy(&folder.join(format!("postgres-{number}")))?;
            clients::fill(&cluster)?;
            clusters.push(cluster);
        }
        let mut servers = Vec::new();
        for cluster in &clusters {
            servers.push(Server { rule: "postgres", pid: cluster.postmaster()?.cast_unsigned() });
        }
        let mut http = Vec::new();
        for number in 1..=interpreters {
            let started = php(&folder.join(format!("php-{number}")))?;
            servers.push(Server { rule: "php", pid: started.pid() });
            http.push(started);
        }
        let port = clients::free_port()?;
        let started = nginx(folder, port, interpreters)?;
        servers.push(Server { rule: "nginx", pid: started.pid() });
        http.push(started);
        let begun = Instant::now();
        while clients::get(port, "/work.php?n=1", "").is_err() {
            let place = folder.display();
            ensure!(begun.elapsed() < Duration::from_secs(20), "no answer: see {place}/*/log");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Fleet { clusters, _http: http, port, servers })
    }
}

/// Rules for all of them, in `folder`. `more` is for each rule.
pub fn rules(folder: &Path, metrics: u16, more: &str) -> String {
    let place = folder.display();
    let counter = format!(
        "psql -h /proc/{{pid}}/cwd/.. -p {} -U postgres -AtXc 'select last_value from work'",
        postgres::PORT
    );
    let rule = |name: &str, program: &str, own: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nprogram = \"{place}/{program}\"\nafter = \"0s\"\n\
             check = \"test ! -e {place}/unwell-{{pid}}\"\ncheck_every = \"1s\"\n{own}{more}\n"
        )
    };
    format!("[daemon]\nmetrics = \"127.0.0.1:{metrics}\"\nlook = \"500ms\"\ncpu_share = 1.0\n\n")
        + &rule(
            "postgres",
            "postgres-*/copy/*/postgres",
            &format!("work_counter = \"{counter}\"\n"),
        )
        + &rule("php", "php-*/php-fpm", "")
        + &rule("nginx", "nginx/nginx", "")
}

/// The newest program whose name begins so.
fn newest(folder: &str, begins: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begins))
    };
    entries.filter(is_one).max().with_context(|| format!("no {folder}/{begins}*"))
}

fn php(folder: &Path) -> Result<Group> {
    std::fs::create_dir_all(folder)?;
    let program = folder.join("php-fpm");
    std::fs::copy(newest("/usr/sbin", "php-fpm")?, &program)?;
    let place = folder.display();
    let conf = folder.join("conf");
    std::fs::write(
        &conf,
        format!(
            "[global]\npid = {place}/pid\nerror_log = {place}/error.log\ndaemonize = no\n\
             [www]\nuser = root\ngroup = root\nlisten = {place}/socket\npm = static\n\
             pm.max_children = 2\n"
        ),
    )?;
    let mut command = Command::new(&program);
    command.args(["-R", "-F", "-y"]).arg(conf);
    Group::logged(&mut command, &folder.join("log"))
}

fn nginx(fleet: &Path, port: u16, interpreters: usize) -> Result<Group> {
    let folder = fleet.join("nginx");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("nginx");
    std::fs::copy("/usr/sbin/nginx", &program)?;
    std::fs::write(folder.join("page.txt"), clients::page())?;
    std::fs::write(folder.join("work.php"), clients::WORK)?;
    let place = folder.display();
    let upstream: String = (1..=interpreters)
        .map(|number| format!("server unix:{}/php-{number}/socket; ", fleet.display()))
        .collect();
    // A request that one of them loses is not given to another: clients are to see it.
    let text = format!(
        "user root; worker_processes 2; daemon off; pid {place}/pid; error_log {place}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {place}; proxy_temp_path {place};\n\
         fastcgi_temp_path {place}; uwsgi_temp_path {place}; scgi_temp_path {place};\n\
         upstream php {{ {upstream} }}\n\
         server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000000; root {place};\n\
         location = /work.php {{ fastcgi_pass php; fastcgi_next_upstream off;\n\
         fastcgi_param SCRIPT_FILENAME {place}/work.php; fastcgi_param QUERY_STRING $query_string;\n\
         fastcgi_param REQUEST_METHOD $request_method; }} }} }}\n"
    );
    let conf = folder.join("conf");
    std::fs::write(&conf, text)?;
    let mut command = Command::new(&program);
    command.arg("-p").arg(&folder).arg("-c").arg(&conf);
    Group::logged(&mut command, &folder.join("log"))
}
