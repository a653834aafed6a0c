//! Why a file cannot be translated.

/// Why a file cannot be translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not an ELF file.
    #[error("not an ELF file; give a static executable (mipsel-linux-gnu-gcc -static)")]
    NotElf,
    /// Of another machine.
    #[error("{0}, neither MIPS32 nor RV32; compile with mipsel-linux-gnu-gcc -static")]
    NotMips32(String),
    /// Of a machine that only Java, of all targets, is given the programs of.
    #[error("an RV32 program, which becomes a jar for Java only: leave out --target")]
    JavaOnly,
    /// A library for processors with half of the registers.
    #[error(
        "an RV32E library, whose functions Java cannot call; compile it for rv32i (-mabi=ilp32)"
    )]
    Embedded,
    /// Needs a loader.
    #[error("a dynamic executable or shared library; link with -static -no-pie")]
    Dynamic,
    /// An object file.
    #[error("an object file; link it with -static first")]
    NotLinked,
    /// Truncated, or made to harm.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// No method can be made that Java would compile.
    #[error("{function} at {address:#x} cannot be made into methods: {reason}")]
    Untranslatable {
        /// Its name.
        function: String,
        /// Where it begins.
        address: u32,
        /// Why not.
        reason: String,
    },
    /// A function that Java is to call is not there.
    #[error(
        "no function named {0}: is the file stripped, or does nothing in it refer to the function? \
             (C++ functions are exported by `extern \"C\"`)"
    )]
    NotExported(String),
    /// No prototype of a function that an interface is to have.
    #[error("{0}: {1}")]
    NoPrototype(String, String),
    /// Built without the runtime.
    #[error(
        "this fettle was built without a JDK, so it has no Java runtime to put into the jar; \
             install default-jdk-headless and build fettle again"
    )]
    NoRuntime,
    /// The jar could not be written.
    #[error("writing the jar: {0}")]
    Jar(String),
}
