//! Arguments of `fettle jar`.

use std::path::PathBuf;

use clap::Parser;
use fettle_jar::{Coordinates, Target};

/// Arguments of `fettle jar`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    fettle jar hello.c -o hello.jar\n  \
    java -jar hello.jar\n  \
    fettle jar hello.c --aot-cache -o hello.jar\n  \
    fettle jar hello.c -- -O3 -DNDEBUG -lm\n  \
    mipsel-linux-gnu-gcc -O2 -static hello.c -o hello\n  \
    fettle jar hello --check\n  \
    fettle jar hello --explain main\n  \
    fettle jar words.c --export count --interface org.acme.Words\n  \
    fettle jar words.c --export count --interface org.acme.Words --coordinates org.acme:words:1.0\n  \
    fettle jar hello.c --target cldc -o hello-midlet.jar\n\n\
    The file is a static executable for 32-bit MIPS, of either byte order, as Debian's\n\
    gcc-mipsel-linux-gnu makes it, or C and C++ sources, which that compiler compiles\n\
    (-O2 -g); or a program for 32-bit RISC-V with picolibc and semihosting. The jar needs Java 17 or newer, and nothing else; for --target android\n\
    what D8 makes of it needs Android 8.0, for --target cldc a device needs CLDC 1.1\n\
    and MIDP 2.0.\n\n\
    Exit status: 0 done; 1 done, but something in it cannot be executed; 2 error.")]
pub struct Args {
    /// A static MIPS or RISC-V executable, or C and C++ sources, objects and archives
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What sources are compiled with besides -O2 -g -static
    #[arg(last = true, value_name = "FLAGS")]
    pub flags: Vec<String>,
    /// What the names of the cross compiler's programs begin with
    #[arg(long, value_name = "PREFIX", default_value = "mipsel-linux-gnu-")]
    pub cross: String,
    /// Where the jar is written; otherwise beside the file, with `.jar` at its end
    #[arg(short, long, value_name = "JAR", conflicts_with_all = ["check", "explain"])]
    pub output: Option<PathBuf>,
    /// Functions that Java calls: the jar is a library, whose `main` is not executed
    #[arg(long, value_name = "FUNCTIONS", value_delimiter = ',')]
    pub export: Vec<String>,
    /// Make a Java interface with these functions of their prototypes (-g), by its full name
    #[arg(long, value_name = "NAME", requires = "export")]
    pub interface: Option<String>,
    /// A function fills an array and sets its length: return the array, which has room for so many
    /// elements, as in `compress2(dest,destLen)=compressBound(sourceLen)`
    #[arg(long = "out", value_name = "FUNCTION(ARRAY,LENGTH)=COUNT", requires = "interface")]
    pub output_array: Vec<String>,
    /// The Java package of the translated classes [default: the interface's, or fettle.program]
    #[arg(long, value_name = "PACKAGE")]
    pub package: Option<String>,
    /// What the jar is to run on: java (17 and newer), android (8.0 and newer, through D8), or cldc
    /// (CLDC 1.1, as a MIDlet)
    #[arg(long, value_name = "TARGET", default_value = "java")]
    pub target: Target,
    /// What the jar is called in a Maven repository: it gets a pom.xml that says so
    #[arg(long, value_name = "GROUP:ARTIFACT:VERSION", conflicts_with_all = ["check", "explain"])]
    pub coordinates: Option<Coordinates>,
    /// Run the jar once, without arguments and input, and write an archive of the classes that its start needs
    /// beside it. Java takes it by the option that is printed
    #[arg(long, conflicts_with_all = ["check", "explain", "export"])]
    pub aot_cache: bool,
    /// The Java that the archive is for
    #[arg(long, value_name = "JAVA", default_value = "java", requires = "aot_cache")]
    pub java: String,
    /// Let loops ask whether they are to end, so that Java can interrupt them and give them fuel
    #[arg(long)]
    pub interruptible: bool,
    /// Write nothing: say what cannot be translated, where it is and why
    #[arg(long)]
    pub check: bool,
    /// Write nothing: show a function's instructions and what they become
    #[arg(long, value_name = "FUNCTION", conflicts_with = "check")]
    pub explain: Option<String>,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}
