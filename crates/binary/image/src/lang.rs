//! Which language a program is mainly written in, as far as it decides what can be done with it.

use crate::{Image, raw};

/// Source language of most of an image.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Language {
    /// C, or assembly.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go, whose stacks move and whose run-time reads return addresses.
    Go,
    /// Nothing tells.
    Unknown,
}

/// Start of Go's build information, whatever the sections are called.
const GO_BUILD_INFO: &[u8] = b"\xff Go buildinf:";

impl Image {
    /// The language that most of it was written in.
    pub fn language(&self) -> Language {
        detect(self)
    }
}

fn detect(image: &Image) -> Language {
    if is_go(image) {
        return Language::Go;
    }
    let (mut rust, mut cpp, mut c) = (0usize, 0usize, 0usize);
    for symbol in image.symbols.iter().filter(|symbol| symbol.is_function()) {
        let name = symbol.name.as_str();
        if is_rust_name(name) {
            rust += 1;
        } else if name.starts_with("_Z") {
            cpp += 1;
        } else {
            c += 1;
        }
    }
    // Rust programs always hold some C, and C++ is recognised by its run-time library even when
    // every symbol of its own is stripped.
    let rust_comment = || {
        let comment = image.section(".comment").and_then(|s| image.elf.section_data(s));
        comment.is_some_and(|text| text.windows(14).any(|window| window == b"rustc version "))
    };
    let needs = |library: &str| image.needed().iter().any(|name| name.starts_with(library));
    if rust > cpp && (rust >= 8 || rust > c) || (cpp == 0 && rust_comment()) {
        Language::Rust
    } else if needs("libstdc++.so") || needs("libc++.so") || cpp > c / 4 {
        Language::Cpp
    } else if c > 0 || needs("libc.so") || needs("libc.musl") {
        Language::C
    } else {
        Language::Unknown
    }
}

fn is_go(image: &Image) -> bool {
    let named = [".go.buildinfo", ".note.go.buildid", ".gopclntab"];
    if named.iter().any(|name| image.section(name).is_some()) {
        return true;
    }
    if image.symbols.iter().any(|symbol| symbol.name == "runtime.main") {
        return true;
    }
    // GCC's Go: compiled code, too, tells the runtime where calls come back to.
    if image.needed().iter().any(|name| name.starts_with("libgo.so")) {
        return true;
    }
    // Without sections: the build information starts the data, on a 16-byte boundary.
    image.elf.sections.is_empty()
        && image.segments().iter().filter(|segment| segment.writable).any(|segment| {
            let data = image.elf.read_from(segment.start).unwrap_or_default();
            raw::first(data, 1 << 20).chunks(16).any(|chunk| chunk.starts_with(GO_BUILD_INFO))
        })
}

/// `_R...` is Rust's own scheme; the older one looks like C++ with a hash as the last part.
fn is_rust_name(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix("_R") {
        return rest.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
    }
    let name = name.find(".llvm.").map_or(name, |at| &name[..at]);
    let Some(rest) = name.strip_prefix("_ZN").and_then(|rest| rest.strip_suffix('E')) else {
        return false;
    };
    let tail: Option<&[u8; 19]> = rest.as_bytes().last_chunk();
    let hash = tail.and_then(|tail| tail.strip_prefix(b"17h"));
    hash.is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit))
}
