//! `protoc-gen-fettle`: a plugin of protoc. It reads a request from standard input and writes a response.
#![forbid(unsafe_code)]

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

const HELP: &str = "\
protoc-gen-fettle makes gRPC stubs that report their calls to a Fettle sensor. protoc runs it:

  protoc --go_out=. --fettle_out=. --fettle_opt=lang=go shop.proto
  protoc --python_out=. --fettle_out=. --fettle_opt=lang=python,mode=cflow shop.proto

Options, separated by commas; all others are passed on to the language's own generator:
  lang=go|python|cpp|java            the language of the stubs
  mode=performance|cflow|scalar      one event a call (default), events of all hooks, or sums a method
  id=none|traceparent                whether calls carry an id (default: none is sent)
  hooks=FILE                         code of your own for hooks
  generator=PATH                     the language's own plugin, if it is not in PATH

Beside the stubs it writes NAME.fettle-calls and NAME.fettle-schema, for fettle import and fettle requests.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("--version" | "-V") => {
            println!("protoc-gen-fettle {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some("--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!(
                "protoc-gen-fettle: there is no argument {other}; options come from protoc: --help"
            );
            return ExitCode::from(2);
        }
        None => {}
    }
    let mut input = std::io::stdin().lock();
    if input.is_terminal() {
        eprint!("{HELP}");
        return ExitCode::from(2);
    }
    let mut request = Vec::new();
    if let Err(error) = input.read_to_end(&mut request) {
        eprintln!("protoc-gen-fettle: the request cannot be read: {error}");
        return ExitCode::from(2);
    }
    let response = fettle_rpc::respond(&request);
    match std::io::stdout().lock().write_all(&response) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protoc-gen-fettle: the response cannot be written: {error}");
            ExitCode::from(2)
        }
    }
}
