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
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read(generated).unwrap();
    let mut file = Vec::new();
    let name = match language {
        "cpp" => "out/shop.grpc.pb.cc",
        "java" => "out/ShopGrpc.java",
        _ => "out/stubs",
    };
    put(&mut file, 1, name.as_bytes());
    put(&mut file, 15, &text);
    let mut response = Vec::new();
    put(&mut response, 15, &file);
    let answer = folder.path().join("answer");
    std::fs::write(&answer, response).unwrap();
    let generator = folder.path().join("g");
    let script = format!("#!/bin/sh\ncat > /dev/null\ncat {}\n", answer.display());
    std::fs::write(&generator, script).unwrap();
    std::fs::set_permissions(&generator, PermissionsExt::from_mode(0o755)).unwrap();
    let options = format!("lang={language},generator={}{more}", generator.display());
    files(&fettle_rpc::respond(&request(&options)))
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
    assert!(error.starts_with("out/stubs:28 (as grpc_python_plugin wrote it)"), "{error}");
    assert!(error.contains("self.List = channel.unary_stream("), "{error}");
    let error = made("go", &golden("python-1.85.txt"), "").unwrap_err();
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
