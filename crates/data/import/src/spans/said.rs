//! What attributes say of a span beside its ids.

/// Attributes that name the process, of several of one service; all that there are count.
const INSTANCE: [&str; 6] =
    ["service.instance.id", "k8s.pod.name", "host.name", "hostname", "process.pid", "pid"];
/// Attributes that name the other side of a call, the best first.
const PEERS: [&str; 12] = [
    "peer.service",
    "source.workload",
    "upstream_cluster",
    "upstream_cluster.name",
    "server.address",
    "net.peer.name",
    "rpc.service",
    "http.host",
    "db.system.name",
    "db.system",
    "messaging.system",
    "peer.address",
];

/// Attributes that hold the port of a connection's asking end: those of a span of the asking side, and of the
/// other.
const PORTS: [&[&str]; 2] = [
    &["network.local.port", "net.sock.host.port"],
    &["network.peer.port", "net.sock.peer.port", "client.port"],
];

/// The process among those of a service.
pub fn instance(attribute: &dyn Fn(&str) -> Option<String>) -> String {
    let parts = INSTANCE.iter().filter_map(|name| attribute(name));
    parts.collect::<Vec<_>>().join("/")
}

/// What the other side of a call may be called.
pub fn peers(attribute: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    PEERS.iter().filter_map(|name| attribute(name)).filter(|name| !name.is_empty()).collect()
}

/// The port of the asking end of a span's connection.
pub fn port(kind: &str, attribute: &dyn Fn(&str) -> Option<String>) -> Option<u16> {
    let names = PORTS.get(match kind {
        "client" => 0,
        "server" => 1,
        _ => return None,
    })?;
    names.iter().find_map(|name| attribute(name)).and_then(|port| port.parse().ok())
}
