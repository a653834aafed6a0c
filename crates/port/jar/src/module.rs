//! The descriptor of the Java module that a library is.

use crate::classfile::Class;
use crate::emit::RUNTIME;
use crate::error::Error;
use crate::options::Options;

/// Modules of Java that the runtime uses.
const USED: [&str; 3] = ["java.management", "jdk.management", "jdk.unsupported"];

const ACC_MANDATED: u16 = 0x8000;

/// `module-info` of a library, whose module has the name of its package. It exports the runtime, the
/// package and that of the interface. None if that interface is in no package, which no module can have.
pub fn of_library(folder: &str, options: &Options) -> Result<Option<Vec<u8>>, Error> {
    let interface = options.interface_folder();
    if options.interface.is_some() && interface.is_none() {
        return Ok(None);
    }
    let mut class = Class::module();
    let name = folder.trim_end_matches('/').replace('/', ".");
    let name = class.pool.module(&name);
    let mut content = Vec::new();
    put(&mut content, &[name, 0, 0, 1 + USED.len() as u16]);
    let base = class.pool.module("java.base");
    put(&mut content, &[base, ACC_MANDATED, 0]);
    for used in USED {
        let used = class.pool.module(used);
        put(&mut content, &[used, 0, 0]);
    }
    let mut packages = vec![RUNTIME, folder];
    packages.extend(interface.as_deref().filter(|interface| *interface != folder));
    put(&mut content, &[packages.len() as u16]);
    for package in packages {
        let package = class.pool.package(package.trim_end_matches('/'));
        put(&mut content, &[package, 0, 0]);
    }
    // It opens, uses and provides nothing.
    put(&mut content, &[0, 0, 0]);
    class.attribute("Module", content);
    let many = || Error::Jar("the names of its packages are too many".into());
    class.finish().map(Some).ok_or_else(many)
}

fn put(content: &mut Vec<u8>, halves: &[u16]) {
    halves.iter().for_each(|half| content.extend(half.to_be_bytes()));
}
