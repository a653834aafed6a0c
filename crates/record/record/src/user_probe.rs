//! The user probe: from a source file to code that can be put into programs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use fettle_code::UserProbe;
use fettle_trace::{Field, Merge};
use object::{Object, ObjectSection, ObjectSymbol};

const HEADER: &str = include_str!("../../../../runtime/probe/fettle_probe.h");
const PRELUDE: &str = include_str!("../../../../runtime/probe/fettle_probe.rs");
const SCRIPT: &str = include_str!("../../../../runtime/probe/probe.ld");

/// Bytes of code that a probe may have.
const CODE_MAX: usize = 1 << 20;

/// A compiled probe and the names of its counters.
#[derive(Clone, Debug)]
pub struct CompiledProbe {
    /// Its code.
    pub probe: UserProbe,
    /// Its counters in use, in order.
    pub fields: Vec<Field>,
}

impl CompiledProbe {
    /// The functions that it has, and whether they are put in line.
    pub fn functions(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let functions = [("fettle_enter", &self.probe.enter), ("fettle_leave", &self.probe.leave)];
        functions.into_iter().filter_map(|(name, f)| Some((name, f.as_ref()?.inline.is_some())))
    }
}

/// Why a source makes no probe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserProbeError {
    /// Neither C nor Rust, by its name.
    #[error("{0}: a probe is a C source (.c) or a Rust source (.rs)")]
    Language(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A compiler cannot be run.
    #[error("cannot run {compiler}, which {path} needs: {error}; set {variable} to another one")]
    NoCompiler {
        /// The source.
        path: PathBuf,
        /// Its name.
        compiler: String,
        /// The environment variable that names it.
        variable: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The compiler or linker refused it.
    #[error("{path} does not compile:\n{message}")]
    Compile {
        /// The source.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// It has no function of a probe, or something that probes cannot have.
    #[error("{path}: {problem}")]
    Unfit {
        /// The source.
        path: PathBuf,
        /// What.
        problem: &'static str,
    },
}

/// Compiles the source at `path` with the user's compilers (`CC`, `RUSTC`).
///
/// # Errors
///
/// Why it makes no probe, with the compiler's words.
pub fn compile(path: &Path) -> Result<CompiledProbe, UserProbeError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| UserProbeError::File { path, error }
    };
    // Read first: a file that is not there is not the compiler's business.
    std::fs::File::open(path).map_err(file(path))?;
    let folder = tempfile::tempdir().map_err(file(&std::env::temp_dir()))?;
    let object = folder.path().join("probe.o");
    match path.extension().and_then(|e| e.to_str()) {
        Some("c") => {
            let header = folder.path().join("fettle_probe.h");
            std::fs::write(&header, HEADER).map_err(file(&header))?;
            let mut compiler = compiler("CC", "cc");
            compiler
                .args(["-c", "-O2", "-fPIE", "-ffreestanding", "-fno-builtin", "-mno-red-zone"])
                .args(["-mgeneral-regs-only", "-fno-stack-protector", "-fcf-protection=none"])
                .args(["-fno-jump-tables", "-fno-asynchronous-unwind-tables", "-Wall", "-I"])
                .args([folder.path(), path, Path::new("-o"), &object]);
            run(compiler, path, "CC")?;
        }
        Some("rs") => {
            let text = std::fs::read_to_string(path).map_err(file(path))?;
            let source = folder.path().join("probe.rs");
            std::fs::write(&source, format!("{PRELUDE}\n{text}")).map_err(file(&source))?;
            let mut compiler = compiler("RUSTC", "rustc");
            // The edition is one that the compilers of distributions know.
            compiler
                .args(["--edition=2021", "--crate-type=lib", "--crate-name=probe", "-O"])
                .args(["-Cpanic=abort", "-Cno-redzone=yes", "-Crelocation-model=pie"])
                .args(["-Ccodegen-units=1", "--emit=obj", "-o"])
                .args([&object, &source]);
            run(compiler, path, "RUSTC")?;
        }
        _ => return Err(UserProbeError::Language(path.to_owned())),
    }
    let script = folder.path().join("probe.ld");
    std::fs::write(&script, SCRIPT).map_err(file(&script))?;
    let linked = folder.path().join("probe.elf");
    let mut linker = compiler("CC", "cc");
    linker
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-e,0", "-Wl,-T"])
        .args([&script, &object, Path::new("-o"), &linked]);
    run(linker, path, "CC")?;
    let bytes = std::fs::read(&linked).map_err(file(&linked))?;
    read(path, &bytes)
}

fn compiler(variable: &str, default: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| default.into()))
}

fn run(mut command: Command, path: &Path, variable: &'static str) -> Result<(), UserProbeError> {
    let output = command.output().map_err(|error| UserProbeError::NoCompiler {
        path: path.to_owned(),
        compiler: command.get_program().to_string_lossy().into_owned(),
        variable,
        error,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(UserProbeError::Compile { path: path.to_owned(), message })
}

/// Takes the linked file apart.
fn read(path: &Path, bytes: &[u8]) -> Result<CompiledProbe, UserProbeError> {
    let unfit = |problem| UserProbeError::Unfit { path: path.to_owned(), problem };
    let file =
        object::File::parse(bytes).map_err(|_| unfit("the linker's output is no ELF file"))?;
    let text = file.section_by_name(".text").and_then(|s| s.data().ok()).unwrap_or_default();
    if text.len() > CODE_MAX {
        return Err(unfit("more than a megabyte of code"));
    }
    let symbol = |name: &str| {
        let found = file.symbols().find(|s| s.name() == Ok(name) && s.is_definition());
        found.and_then(|s| u32::try_from(s.address()).ok()).filter(|at| (*at as usize) < text.len())
    };
    let (enter, leave) = (symbol("fettle_enter"), symbol("fettle_leave"));
    if enter.is_none() && leave.is_none() {
        return Err(unfit(
            "it defines neither fettle_enter nor fettle_leave (in Rust, with #[no_mangle] and \
             extern \"C\")",
        ));
    }
    let names = file.section_by_name(".fettle_counters").and_then(|s| s.data().ok());
    let names = String::from_utf8_lossy(names.unwrap_or_default()).into_owned();
    let fields = fields(&names);
    if fields.len() > 4 {
        return Err(unfit("more than four names of counters"));
    }
    Ok(CompiledProbe {
        probe: fettle_rewrite::user_probe::compiled(text.to_vec(), enter, leave),
        fields,
    })
}

/// Names as a probe gives them; all four counters by number if it gives none.
fn fields(names: &str) -> Vec<Field> {
    let field = |name: &str| match name.strip_prefix("max:") {
        Some(name) => Field { name: name.trim().to_owned(), merge: Merge::Max },
        None => Field { name: name.to_owned(), merge: Merge::Sum },
    };
    let names = names.trim_end_matches('\0');
    if names.trim().is_empty() {
        return (1..=4).map(|n| field(&format!("counter {n}"))).collect();
    }
    names.split(',').map(|name| field(name.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(name: &str, text: &str) -> Result<CompiledProbe, UserProbeError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        compile(&path)
    }

    #[test]
    fn straight_lines_are_put_in_line() {
        let user_probe = compiled(
            "a.c",
            "#include <fettle_probe.h>\nFETTLE_COUNTERS(\"calls, bytes, max:largest\");\n\
             void fettle_enter(struct fettle_state *s, const struct fettle_call *c)\n\
             { s->counter[0]++; s->counter[1] += c->argument[1]; }\n\
             void fettle_leave(struct fettle_state *s, const struct fettle_call *c)\n\
             { if (c->result > s->counter[2]) s->counter[2] = c->result; }\n",
        );
        let user_probe = user_probe.unwrap();
        let inline = user_probe.probe.enter.unwrap().inline.unwrap();
        assert_eq!(inline.fixups.iter().map(|f| f.1).collect::<Vec<_>>(), [0, 8]);
        assert!(user_probe.probe.leave.is_some());
        assert!(!user_probe.probe.vectors);
        assert_eq!(user_probe.fields[2], Field { name: "largest".into(), merge: Merge::Max });
    }

    #[test]
    fn what_probes_cannot_have_is_refused() {
        let reported = |name: &str, text: &str| compiled(name, text).unwrap_err().to_string();
        let function = "void fettle_enter(struct fettle_state *s, const struct fettle_call *c)";
        let c = |body: &str| format!("#include <fettle_probe.h>\n{body}");
        assert!(reported("a.c", &c("int x = ;")).contains("does not compile"));
        assert!(reported("a.c", &c("int unrelated;")).contains("no variables of its own"));
        assert!(reported("a.c", &c("int f(int x) { return x; }")).contains("neither fettle_enter"));
        let variable = c(&format!("static int calls; {function} {{ s->counter[0] = ++calls; }}"));
        assert!(reported("a.c", &variable).contains("no variables of its own"));
        let library = c(&format!("int puts(const char *); {function} {{ puts(\"x\"); }}"));
        assert!(reported("a.c", &library).contains("puts"));
        assert!(reported("a.cc", "").contains("C source"));
        assert!(compile(Path::new("/nonexistent/a.c")).is_err());
    }
}
