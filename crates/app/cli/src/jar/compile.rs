//! C and C++ sources to the executable that is translated, by the cross compiler that is there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// What C sources include to name functions of Java and for it.
const HEADER: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../runtime/jvm/include/fettle/java.h"
));

/// Linked to a library: a `main` unless there is one, and the functions that Java's side needs.
const LIBRARY: &str = "#include <stdlib.h>\n\
    __attribute__((weak)) int main(void) { return 0; }\n\
    __attribute__((used)) static void *const fettle_memory[] = {(void *)malloc, (void *)free};\n";

/// Puts the program where the stack has just enough room below it.
const LOW: &str = "-Wl,-Ttext-segment=0x20000";

/// What sources are compiled with.
pub struct Compiler<'a> {
    /// What the names of its programs begin with, as `mipsel-linux-gnu-`.
    pub prefix: &'a str,
    /// What they are given beside the files.
    pub flags: &'a [String],
    /// The functions that Java calls, if it is to call any.
    pub exports: &'a [String],
    /// Whether the program is for a device, on which unused addresses cost memory.
    pub small: bool,
}

/// What a file is to the compiler.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    C,
    Cpp,
    /// Something that goes to the linker as it is.
    Object,
}

fn language(file: &Path) -> Option<Language> {
    match file.extension().and_then(OsStr::to_str)? {
        "c" | "s" | "S" => Some(Language::C),
        "cc" | "cpp" | "cxx" | "c++" | "C" => Some(Language::Cpp),
        "o" | "a" => Some(Language::Object),
        _ => None,
    }
}

/// Whether a file is one that is compiled or linked, not an executable.
pub fn is_source(file: &Path) -> bool {
    language(file).is_some()
}

impl Compiler<'_> {
    /// Compiles and links; the executable is in the folder.
    pub fn run(&self, files: &[PathBuf], folder: &Path) -> anyhow::Result<PathBuf> {
        let include = folder.join("include/fettle");
        std::fs::create_dir_all(&include).context("making a temporary folder")?;
        std::fs::write(include.join("java.h"), HEADER).context("writing a temporary file")?;
        let mut files = files.to_vec();
        if !self.exports.is_empty() {
            let file = folder.join("fettle_library.c");
            std::fs::write(&file, LIBRARY).context("writing a temporary file")?;
            files.push(file);
        }
        let mut objects = Vec::new();
        let mut is_cpp = false;
        for (number, file) in files.iter().enumerate() {
            let language = match language(file) {
                Some(Language::Object) => {
                    objects.push(file.clone());
                    continue;
                }
                Some(language) => language,
                None => bail!(
                    "{}: neither a C or C++ source nor an object; an executable stands alone",
                    file.display()
                ),
            };
            is_cpp |= language == Language::Cpp;
            let object = folder.join(format!("{number}.o"));
            let mut command = self.command(language);
            // The folder's name is another one each time, and the same sources give the same jar.
            command.arg(format!("-ffile-prefix-map={}=fettle", folder.display()));
            command.arg("-I").arg(folder.join("include")).arg("-c");
            self.finish(command.arg(file).arg("-o").arg(&object), &file.display().to_string())?;
            objects.push(object);
        }
        let program = folder.join("program");
        let mut command = self.command(if is_cpp { Language::Cpp } else { Language::C });
        command
            .arg("-static")
            .args(self.small.then_some(LOW))
            .args(&objects)
            .arg("-o")
            .arg(&program);
        // Linkers drop what nothing refers to.
        command.args(self.exports.iter().map(|name| format!("-Wl,-u,{name}")));
        // Libraries stand behind what needs them.
        command.args(self.flags.iter().filter(|flag| flag.starts_with("-l")));
        self.finish(&mut command, "linking")?;
        Ok(program)
    }

    fn command(&self, language: Language) -> Command {
        let name = if language == Language::Cpp { "g++" } else { "gcc" };
        let mut command = Command::new(format!("{}{name}", self.prefix));
        command.args(["-O2", "-g"]).args(self.flags);
        command
    }

    /// Runs it; what it says goes to the user.
    fn finish(&self, command: &mut Command, what: &str) -> anyhow::Result<()> {
        let name = command.get_program().display().to_string();
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => bail!("{what}: {name} failed; its messages are above"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let package = name.trim_start_matches(self.prefix);
                let machine = self.prefix.trim_end_matches('-');
                bail!(
                    "{name} is not there: install {package}-{machine}, as Debian calls it, \
                     or name another compiler by --cross PREFIX"
                )
            }
            Err(error) => Err(error).context(format!("starting {name}")),
        }
    }
}
