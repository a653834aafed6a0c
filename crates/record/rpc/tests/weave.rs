//! What is woven into real output of the languages' generators, by release. The goldens are the lines that
//! differ; `FETTLE_BLESS=1` writes them anew.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fettle_rpc::Options;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The service of all of them: four kinds, and fields that are marked.
const REQUEST: &str = "shop.request";

/// A request with other options.
fn request(options: &str) -> Vec<u8> {
    let mut request = std::fs::read(golden(REQUEST)).unwrap();
    // A field that comes again replaces the first.
    put(&mut request, 2, options.as_bytes());
    request
}

/// Runs the plugin with a generator that writes what a file holds; the names and contents of its files.
fn made(language: &str, generated: &Path, more: &str) -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read_to_string(generated).unwrap();
    files(&responded(language, &text, &[], |options| request(&format!("{options}{more}"))))
}

/// Runs the plugin with a generator that says what it can do and writes a text; the plugin's response.
fn responded(
    language: &str,
    text: &str,
    abilities: &[u8],
    request: impl Fn(&str) -> Vec<u8>,
) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let mut file = Vec::new();
    let name = match language {
        "cpp" => "out/shop.grpc.pb.cc",
        "java" => "out/ShopGrpc.java",
        _ => "out/stubs",
    };
    put(&mut file, 1, name.as_bytes());
    put(&mut file, 15, text.as_bytes());
    let mut response = abilities.to_vec();
    put(&mut response, 15, &file);
    let answer = folder.path().join("answer");
    std::fs::write(&answer, response).unwrap();
    let generator = folder.path().join("g");
    let script = format!("#!/bin/sh\ncat > /dev/null\ncat {}\n", answer.display());
    std::fs::write(&generator, script).unwrap();
    std::fs::set_permissions(&generator, PermissionsExt::from_mode(0o755)).unwrap();
    let options = format!("lang={language},generator={}", generator.display());
    fettle_rpc::respond(&request(&options))
}

/// A request for `web.proto` of package `p`, whose services' methods take and give a `p.A`. With `extra`
/// fields of the file.
fn request_for(services: &[(&str, &[&str])], extra: &[u8], options: &str) -> Vec<u8> {
    let mut file = Vec::new();
    put(&mut file, 1, b"web.proto");
    put(&mut file, 2, b"p");
    let mut message = Vec::new();
    put(&mut message, 1, b"A");
    put(&mut file, 4, &message);
    let mut places = Vec::new();
    for (number, (name, methods)) in services.iter().enumerate() {
        let mut service = Vec::new();
        put(&mut service, 1, name.as_bytes());
        for (of, name) in methods.iter().enumerate() {
            let mut method = Vec::new();
            put(&mut method, 1, name.as_bytes());
            put(&mut method, 2, b".p.A");
            put(&mut method, 3, b".p.A");
            put(&mut service, 2, &method);
            // The tenth line for the first of each service.
            let mut place = Vec::new();
            put(&mut place, 1, &[6, number as u8, 2, of as u8]);
            put(&mut place, 2, &[9 + of as u8, 2, 40]);
            put(&mut places, 1, &place);
        }
        put(&mut file, 6, &service);
    }
    let mut syntax = Vec::new();
    put(&mut syntax, 1, &[12]);
    put(&mut syntax, 2, &[0, 0, 17]);
    put(&mut places, 1, &syntax);
    put(&mut file, 9, &places);
    file.extend(extra);
    let mut request = Vec::new();
    put(&mut request, 1, b"web.proto");
    put(&mut request, 2, options.as_bytes());
    put(&mut request, 15, &file);
    request
}

/// The stub that is woven for services out of what a generator wrote.
fn woven(language: &str, text: &str, services: &[(&str, &[&str])]) -> Result<String, String> {
    let response = responded(language, text, &[], |options| request_for(services, &[], options));
    files(&response).map(|files| files[0].1.clone())
}

fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
}

/// Takes a response apart.
fn files(mut response: &[u8]) -> Result<Vec<(String, String)>, String> {
    fn field<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
        let (key, mut left) = rest.split_first()?;
        let (mut length, mut shift) = (0, 0);
        loop {
            let (byte, after) = left.split_first()?;
            left = after;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if key & 7 == 0 {
            *rest = left;
            return Some((key >> 3, &[]));
        }
        let (bytes, after) = left.split_at(length);
        *rest = after;
        Some((key >> 3, bytes))
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut files = Vec::new();
    while let Some((number, mut bytes)) = field(&mut response) {
        match number {
            1 => return Err(text(bytes)),
            15 => {
                let (_, name) = field(&mut bytes).unwrap();
                let (_, content) = field(&mut bytes).unwrap();
                files.push((text(name), text(content)));
            }
            _ => {}
        }
    }
    Ok(files)
}

/// Lines that are in one of two texts only, with their numbers in it.
fn changed(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // Lengths of the longest common rests.
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            out.push_str(&format!("{:4} -{}\n", i + 1, old[i]));
            i += 1;
        } else {
            out.push_str(&format!("{:4} +{}\n", j + 1, new[j]));
            j += 1;
        }
    }
    out
}

fn check(language: &str, release: &str, more: &str, expected: &str) {
    let generated = golden(&format!("{language}-{release}.txt"));
    let files = made(language, &generated, more).unwrap();
    let (name, woven) = &files[0];
    assert!(name.starts_with("out/"));
    let changed = changed(&std::fs::read_to_string(generated).unwrap(), woven);
    let expected = golden(expected);
    if std::env::var_os("FETTLE_BLESS").is_some() {
        std::fs::write(&expected, &changed).unwrap();
    }
    assert_eq!(changed, std::fs::read_to_string(expected).unwrap());
    let others: Vec<&str> = files[1..].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(others, ["out/shop.fettle-calls", "out/shop.fettle-schema"]);
}

#[test]
fn python_of_two_releases() {
    check("python", "1.51", "", "python-1.51.woven");
    check("python", "1.85", ",id=traceparent", "python-1.85.woven");
}

#[test]
fn go_of_three_releases() {
    for release in ["1.3", "1.5", "1.6"] {
        check("go", release, "", &format!("go-{release}.woven"));
    }
}

#[test]
fn cpp_and_java() {
    check("cpp", "1.51", "", "cpp-1.51.woven");
    check("java", "1.68", ",id=traceparent", "java-1.68.woven");
}

/// tonic's stubs are woven by a build script, with a set of descriptions.
#[test]
fn rust_by_a_build_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let generated = std::fs::read_to_string(golden("rust-0.14.txt")).unwrap();
    std::fs::write(path("shop.v1.rs"), &generated).unwrap();
    let mut set = Vec::new();
    let bytes = request("");
    for file in fettle_rpc::read(&bytes).unwrap().files {
        put(&mut set, 1, file);
    }
    std::fs::write(path("set"), set).unwrap();
    fettle_rpc::tonic::weave(&path("set"), &["shop.proto"], folder.path(), "id=traceparent")
        .unwrap();
    let changed = changed(&generated, &std::fs::read_to_string(path("shop.v1.rs")).unwrap());
    let expected = golden("rust-0.14.woven");
    if std::env::var_os("FETTLE_BLESS").is_some() {
        std::fs::write(&expected, &changed).unwrap();
    }
    assert_eq!(changed, std::fs::read_to_string(expected).unwrap());
    assert!(path("shop.fettle-calls").exists() && path("shop.fettle-schema").exists());
}

#[test]
fn go_with_all_hooks_and_code_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let hooks = folder.path().join("hooks");
    let code = "[go default_includes]\n\"log\"\n[go before_component]\nlog.Print(\"{method}\")\n";
    std::fs::write(&hooks, code).unwrap();
    check("go", "1.6", &format!(",mode=cflow,hooks={}", hooks.display()), "go-cflow.woven");
}

#[test]
fn the_schema_is_one() {
    let files = made("python", &golden("python-1.85.txt"), "").unwrap();
    let (_, schema) = &files[2];
    let source = fettle_requests::Source::new("shop", schema.as_str());
    if let Err(report) = fettle_requests::compile(&[source], &|_| None) {
        panic!("{report}");
    }
    assert!(schema.contains("event shop_v1_Shop_Buy(trace: text, span: text, customer: text, picture_size: u64, number: u64)"));
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let strange = folder.path().join("strange");
    let text = std::fs::read_to_string(golden("python-1.85.txt")).unwrap();
    std::fs::write(&strange, text.replace("self.List = channel.", "self.List = a_channel."))
        .unwrap();
    let error = made("python", &strange, "").unwrap_err();
    assert!(
        error.starts_with(
            "shop.proto:9:3: shop.v1.Shop/List cannot be woven: out/stubs:28 (as grpc_python_plugin wrote it)"
        ),
        "{error}"
    );
    assert!(error.contains("self.List = channel.unary_stream("), "{error}");
    let error = made("go", &golden("python-1.85.txt"), "").unwrap_err();
    assert!(error.starts_with("shop.proto: the stub cannot be woven: out/stubs:1 "), "{error}");
    assert!(error.contains("import ("), "{error}");
}

#[test]
fn a_generator_that_fails_or_is_not_there_is_named() {
    let answer = |options: &str| files(&fettle_rpc::respond(&request(options))).unwrap_err();
    assert!(
        answer("lang=go,generator=/nowhere/g").starts_with("/nowhere/g: it could not be started")
    );
    assert!(answer("lang=go,generator=/bin/false").contains("exit status: 1"));
    assert!(Options::read("lang=go,colour=red").unwrap().others == ["colour=red"]);
}

/// Go's names begin in upper case, whatever the description has.
#[test]
fn go_of_services_in_lower_case() {
    let lower = |options: &str| {
        let mut request = request(options);
        // The name of the service: field 1, four bytes.
        let at = request.windows(6).rposition(|bytes| bytes == b"\x0a\x04Shop").unwrap();
        request[at + 2] = b's';
        request
    };
    for release in ["1.3", "1.5", "1.6"] {
        let path = golden(&format!("go-{release}.txt"));
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("shop.v1.Shop", "shop.v1.shop");
        let woven = files(&responded("go", &text, &[], lower)).unwrap()[0].1.clone();
        let usual = made("go", &path, "").unwrap()[0].1.clone();
        // Services have other numbers by their names.
        let rest = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with("\tService: 0x"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(rest(&woven), rest(&usual.replace("shop.v1.Shop", "shop.v1.shop")));
        assert!(
            woven.contains("fettle.Invoke(c.cc, ctx, fettle_Shop_Buy, Shop_Buy_FullMethodName")
        );
    }
}

/// What protoc-gen-go-grpc 1.6 writes of `service web_shop`, without what nothing is put into.
const WEB_SHOP: &str = "\
package p

import (
\tcontext \"context\"
)

const (
\tWebShop_BuyIt_FullMethodName = \"/p.web_shop/buy_it\"
)

type WebShopClient interface {
\t// func (c *webShopClient) BuyIt(ctx context.Context
\t// c.cc.Invoke(ctx, WebShop_BuyIt_FullMethodName, in)
\tBuyIt(ctx context.Context, in *A, opts ...grpc.CallOption) (*A, error)
}

func (c *webShopClient) BuyIt(ctx context.Context, in *A, opts ...grpc.CallOption) (*A, error) {
\tcOpts := append([]grpc.CallOption{grpc.StaticMethod()}, opts...)
\tout := new(A)
\terr := c.cc.Invoke(ctx, WebShop_BuyIt_FullMethodName, in, out, cOpts...)
\tif err != nil {
\t\treturn nil, err
\t}
\treturn out, nil
}

func _WebShop_BuyIt_Handler(srv interface{}, ctx context.Context, dec func(interface{}) error, interceptor grpc.UnaryServerInterceptor) (interface{}, error) {
\tin := new(A)
\tif err := dec(in); err != nil {
\t\treturn nil, err
\t}
\tif interceptor == nil {
\t\treturn srv.(WebShopServer).BuyIt(ctx, in)
\t}
}
";

#[test]
fn go_of_a_service_with_an_underscore() {
    let woven = woven("go", WEB_SHOP, &[("web_shop", &["buy_it"])]).unwrap();
    for wanted in [
        "fettle.Invoke(c.cc, ctx, fettle_WebShop_BuyIt, WebShop_BuyIt_FullMethodName, in, out, cOpts...)",
        "\tctx = fettle.Serve(ctx, fettle_WebShop_BuyIt)\n\tin := new(A)",
        "var fettle_WebShop_BuyIt = &fettle.Method{",
        "\tName: \"p.web_shop/buy_it\",",
        "\t// c.cc.Invoke(ctx, WebShop_BuyIt_FullMethodName, in)\n",
    ] {
        assert_eq!(woven.matches(wanted).count(), 1, "{wanted}: {woven}");
    }
}

/// All that a generator writes, once more as the comment of a description: nothing is woven there.
#[test]
fn comments_that_look_like_code_are_left() {
    for (language, release, mark) in [
        ("go", "1.3", "// "),
        ("go", "1.5", "\t// "),
        ("go", "1.6", "// "),
        ("java", "1.68", " * "),
        ("cpp", "1.51", "// "),
        ("python", "1.51", "# "),
        ("python", "1.85", ""),
    ] {
        let path = golden(&format!("{language}-{release}.txt"));
        let text = std::fs::read_to_string(&path).unwrap();
        let mut comment: String = text.lines().map(|line| format!("{mark}{line}\n")).collect();
        if mark.is_empty() {
            comment = format!("\"\"\"{}\"\"\"\n", comment.replace("\"\"\"", ""));
        }
        let twice = format!("{comment}{text}");
        for mode in ["", ",mode=cflow"] {
            let once = made(language, &path, mode).unwrap()[0].1.clone();
            let with = |options: &str| request(&format!("{options}{mode}"));
            let woven = files(&responded(language, &twice, &[], with)).unwrap()[0].1.clone();
            let rest = woven.strip_prefix(&comment);
            assert!(rest == Some(once.as_str()), "{language} {release} {mode}: {woven}");
        }
    }
}

/// What grpc_cpp_plugin 1.51 writes of a service without methods: no names, and a stub without calls.
const EMPTY: &str = "\
#include <grpcpp/support/sync_stream.h>
namespace p {

std::unique_ptr< Empty::Stub> Empty::NewStub(const std::shared_ptr< ::grpc::ChannelInterface>& channel, const ::grpc::StubOptions& options) {
  (void)options;
  std::unique_ptr< Empty::Stub> stub(new Empty::Stub(channel, options));
  return stub;
}

Empty::Stub::Stub(const std::shared_ptr< ::grpc::ChannelInterface>& channel, const ::grpc::StubOptions& options)
  : channel_(channel){}

Empty::Service::Service() {
}

Empty::Service::~Service() {
}

}  // namespace p
";

#[test]
fn a_service_without_methods() {
    let written = woven("cpp", EMPTY, &[("Empty", &[])]).unwrap();
    assert_eq!(changed(EMPTY, &written), "   2 +#include \"fettle_rpc.h\"\n");
    // Beside one that has some.
    let shop = std::fs::read_to_string(golden("cpp-1.51.txt")).unwrap();
    let both = shop.replace(
        "\nstatic const char* Shop_method_names",
        &format!("\n{}\nstatic const char* Shop_method_names", EMPTY.split_once('\n').unwrap().1),
    );
    assert_ne!(shop, both);
    let error = woven("cpp", &both, &[("Empty", &[]), ("Shop", &["Buy", "Sell"])]).unwrap_err();
    assert!(
        error.starts_with("web.proto:11:3: p.Shop/Sell cannot be woven: out/shop.grpc.pb.cc:"),
        "{error}"
    );
    assert!(!error.contains("Empty"), "{error}");
    // Go refuses an import that nothing uses.
    let text = "package p\n\nimport (\n\tgrpc \"google.golang.org/grpc\"\n)\n";
    assert_eq!(woven("go", text, &[("Empty", &[])]).unwrap(), text);
}

/// Field 14 of a file: edition 2023.
const EDITION: &[u8] = &[14 << 3, 0xe8, 7];
/// What a generator says that takes editions from proto2 to 2023.
const TAKES_EDITIONS: &[u8] = &[2 << 3, 3, 3 << 3, 0xe6, 7, 4 << 3, 0xe8, 7];

#[test]
fn an_edition_is_for_generators_that_take_it() {
    let of = |options: &str| request_for(&[("web_shop", &["buy_it"])], EDITION, options);
    // Whatever is answered, the compiler has to hear that editions are known: else it says in its place that not.
    let known = |response: &[u8]| response.starts_with(&[2 << 3, 3, 3 << 3, 0xe6, 7, 4 << 3, 0xff]);
    let response = responded("go", WEB_SHOP, TAKES_EDITIONS, of);
    assert!(known(&response), "{response:?}");
    let taken = files(&response).unwrap();
    assert_eq!(taken[0].1, woven("go", WEB_SHOP, &[("web_shop", &["buy_it"])]).unwrap());
    let until_proto3 = [&TAKES_EDITIONS[..5], &[4 << 3, 0xe7, 7]].concat();
    for abilities in [&[][..], &[2 << 3, 1], &until_proto3] {
        let response = responded("go", WEB_SHOP, abilities, of);
        assert!(known(&response), "{response:?}");
        let error = files(&response).unwrap_err();
        assert!(error.starts_with("web.proto:1:1: the file is of edition 2023, which "), "{error}");
    }
    let response = fettle_rpc::respond(&of("lang=java,generator=/bin/false"));
    assert!(known(&response), "{response:?}");
    let error = files(&response).unwrap_err();
    assert!(
        error.starts_with("web.proto:1:1: the file is of edition 2023, and /bin/false failed on it: exit status: 1"),
        "{error}"
    );
}

/// `grpc_tools` refuses itself what it does not take, so the plugin says that it takes all editions.
#[test]
fn an_edition_by_grpc_tools() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python3");
    let generated = golden("python-1.85.txt");
    let script = format!(
        "#!/bin/sh\nfor a; do case $a in --grpc_python_out=*) cp {} ${{a#*=}}/web_pb2_grpc.py;; esac; done\n",
        generated.display()
    );
    std::fs::write(&python, script).unwrap();
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
    let options = "lang=python,generator=grpc_tools";
    let request = request_for(&[("Shop", &["Buy"])], EDITION, options);
    let mut plugin = std::process::Command::new(env!("CARGO_BIN_EXE_protoc-gen-fettle"))
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut plugin.stdin.take().unwrap(), &request).unwrap();
    let response = plugin.wait_with_output().unwrap().stdout;
    assert!(response.starts_with(&TAKES_EDITIONS[..5]), "{response:?}");
    let files = files(&response).unwrap();
    assert_eq!(files[0].0, "web_pb2_grpc.py");
    assert!(files[0].1.contains("_fettle.client(channel.unary_unary("), "{}", files[0].1);
}
