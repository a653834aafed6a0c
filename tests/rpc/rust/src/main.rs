//! The matrix in Rust: `matrix server`, which prints its port, and `matrix client PORT`, which asks its parent by
//! `cut` and `kill` to do what only that can.

#![forbid(unsafe_code)]

use std::pin::Pin;
use std::time::Duration;

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use pb::matrix_client::MatrixClient;
use pb::matrix_server::{Matrix, MatrixServer};
use pb::{Answer, Ask};

mod pb {
    tonic::include_proto!("matrix.v1");
}

fn end(tag: &str) -> &str {
    tag.split('/').nth(1).unwrap_or_default()
}

fn goes_on(tag: &str) -> bool {
    matches!(end(tag), "ok" | "idle" | "forgotten")
}

async fn act(tag: &str) -> Result<Answer, Status> {
    match end(tag) {
        "error" => return Err(Status::invalid_argument("no")),
        "abort" => return Err(Status::aborted("enough")),
        "cancel" | "deadline" | "cut" | "killed" => std::future::pending::<()>().await,
        _ => {}
    }
    Ok(Answer { number: 42, ..Answer::default() })
}

#[derive(Default)]
struct Service {
    next: Option<Client>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

/// Answers by a channel, as programs do.
fn answers(rx: tokio::sync::mpsc::Receiver<Result<Answer, Status>>) -> Response<Answers> {
    Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(rx)))
}

#[tonic::async_trait]
impl Matrix for Service {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let ask = request.into_inner();
        // Of a chain: as many calls of the next server as the first digit says, each with the other digits.
        if let (Some(client), Some(digit)) = (&self.next, ask.secret.bytes().next()) {
            for _ in b'0'..digit {
                let rest = ask.secret[1..].to_owned();
                client.clone().unary(Ask { tag: ask.tag.clone(), secret: rest, ..Ask::default() }).await?;
            }
        }
        act(&ask.tag).await.map(Response::new)
    }

    type ServerStreamStream = Answers;

    async fn server_stream(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
        let (tx, rx) = tokio::sync::mpsc::channel(8);
        let tag = request.into_inner().tag;
        tokio::spawn(async move {
            for number in 1..=3 {
                let _ = tx.send(Ok(Answer { number, ..Answer::default() })).await;
            }
            if let Err(status) = act(&tag).await {
                let _ = tx.send(Err(status)).await;
            }
        });
        Ok(answers(rx))
    }

    async fn client_stream(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let mut asks = request.into_inner();
        let mut tag = String::new();
        while let Some(ask) = asks.message().await? {
            tag = ask.tag;
            if !goes_on(&tag) {
                break;
            }
        }
        act(&tag).await.map(Response::new)
    }

    type BidiStream = Answers;

    async fn bidi(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
        let (tx, rx) = tokio::sync::mpsc::channel(8);
        let mut asks = request.into_inner();
        tokio::spawn(async move {
            let mut tag = String::new();
            while let Ok(Some(ask)) = asks.message().await {
                tag = ask.tag;
                let _ = tx.send(Ok(Answer { number: 1, ..Answer::default() })).await;
                if !goes_on(&tag) {
                    break;
                }
            }
            if let Err(status) = act(&tag).await {
                let _ = tx.send(Err(status)).await;
            }
        });
        Ok(answers(rx))
    }
}

fn ask_parent(what: &str) {
    println!("{what}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

async fn serve() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let next = std::env::var("FETTLE_NEXT").ok().map(|port| {
        let endpoint = tonic::transport::Endpoint::new(format!("http://127.0.0.1:{port}")).unwrap();
        MatrixClient::new(endpoint.connect_lazy())
    });
    let service = Service { next };
    // It ends with its input.
    std::thread::spawn(|| {
        drop(std::io::read_to_string(std::io::stdin()));
        std::process::exit(0);
    });
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(MatrixServer::new(service));
    server.serve_with_incoming(incoming).await.unwrap();
}

/// CPU time of this process in nanoseconds.
fn cpu() -> u64 {
    let of_threads = std::fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    of_threads.sum()
}

/// The CPU time of a call, client and server in this process.
async fn bench(calls: u64) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(MatrixServer::new(Service::default()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = tonic::transport::Endpoint::new(format!("http://127.0.0.1:{port}")).unwrap();
    let mut client = MatrixClient::new(endpoint.connect().await.unwrap());
    let ask = Ask { tag: "unary/ok".into(), body: b"12345".to_vec(), secret: String::new() };
    for _ in 0..calls / 4 {
        client.unary(ask.clone()).await.unwrap();
    }
    let begin = cpu();
    for _ in 0..calls {
        client.unary(ask.clone()).await.unwrap();
    }
    println!("{}", (cpu() - begin) / calls);
}

type Client = MatrixClient<tonic::transport::Channel>;

/// Two messages, and then nothing more if the call is to hang.
fn asks(tag: &str) -> impl Stream<Item = Ask> + Send + 'static {
    let ask = Ask { tag: tag.to_owned(), body: b"12345".to_vec(), secret: "s".into() };
    let hangs = !goes_on(tag);
    let rest = tokio_stream::once(()).then(move |()| async move {
        if hangs {
            std::future::pending::<()>().await;
        }
        None
    });
    tokio_stream::iter([Some(ask.clone()), Some(ask)]).chain(rest).filter_map(|ask| ask)
}

/// A call from its beginning to its end, or, where `reads` is not, to the beginning of its answers, which it gives.
async fn call(mut client: Client, kind: &str, tag: String, limit: Option<Duration>, reads: bool) -> Option<Streaming<Answer>> {
    fn with<T>(message: T, limit: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(limit) = limit {
            request.set_timeout(limit);
        }
        request
    }
    let ask = Ask { tag: tag.clone(), body: b"12345".to_vec(), secret: "s".into() };
    let answers = match kind {
        "unary" => {
            let _ = client.unary(with(ask, limit)).await;
            None
        }
        "server" => client.server_stream(with(ask, limit)).await.ok(),
        "client" => {
            let _ = client.client_stream(with(asks(&tag), limit)).await;
            None
        }
        _ => client.bidi(with(asks(&tag), limit)).await.ok(),
    };
    let mut answers = answers?.into_inner();
    if !reads {
        return Some(answers);
    }
    while let Ok(Some(_)) = answers.message().await {}
    None
}

async fn run(port: &str) {
    let endpoint = tonic::transport::Endpoint::new(format!("http://127.0.0.1:{port}")).unwrap();
    let client = MatrixClient::new(endpoint.connect_lazy());
    let mut idle = Vec::new();
    for end in ["ok", "error", "cancel", "deadline", "abort", "cut", "idle", "forgotten", "killed"] {
        let mut running = Vec::new();
        for kind in ["unary", "server", "client", "bidi"] {
            let (client, tag) = (client.clone(), format!("{kind}/{end}"));
            match end {
                "ok" | "error" | "abort" => drop(call(client, kind, tag, None, true).await),
                // tonic's own limit is for the beginning of the answer only.
                "deadline" => {
                    let limit = Duration::from_millis(300);
                    let whole = call(client, kind, tag, Some(limit), true);
                    drop(tokio::time::timeout(limit * 2, whole).await);
                }
                "cancel" => {
                    let task = tokio::spawn(call(client, kind, tag, None, true));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    task.abort();
                    let _ = task.await;
                }
                "idle" => idle.push(call(client, kind, tag, None, false).await),
                // Polled for a while, and dropped.
                "forgotten" => {
                    let once = call(client, kind, tag, None, false);
                    drop(tokio::time::timeout(Duration::from_millis(30), once).await);
                }
                _ => running.push(tokio::spawn(call(client, kind, tag, None, true))),
            }
        }
        if matches!(end, "cut" | "killed") {
            tokio::time::sleep(Duration::from_millis(200)).await;
            ask_parent(if end == "cut" { "cut" } else { "kill" });
            for task in running {
                let _ = task.await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    drop(idle);
    drop(client);
    tokio::time::sleep(Duration::from_millis(200)).await;
    println!("done");
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments[1].as_str() {
        "server" => serve().await,
        "bench" => bench(arguments[2].parse().unwrap()).await,
        _ => run(&arguments[2]).await,
    }
}
