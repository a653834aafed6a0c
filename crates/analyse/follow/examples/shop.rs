//! Writes a trace of a shop whose requests are known, to look at without recording anything.
//!
//! `cargo run --release -p fettle-follow --example shop FOLDER CLIENTS REQUESTS`

#[path = "../tests/shop/mod.rs"]
mod shop;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, clients, requests] = args.as_slice() else {
        eprintln!("usage: shop FOLDER CLIENTS REQUESTS");
        std::process::exit(2);
    };
    let (Ok(clients), Ok(requests)) = (clients.parse(), requests.parse()) else {
        eprintln!("CLIENTS and REQUESTS are numbers");
        std::process::exit(2);
    };
    let truths = shop::write(std::path::Path::new(folder), clients, requests);
    let slow = truths.iter().filter(|truth| truth.slow).count();
    println!("{} requests, {slow} of them slow", truths.len());
}
