//! What a jar is to run on: the form of class files, of memory, and which methods of Java are there.

/// What a jar is to run on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Target {
    /// Java 17 and newer.
    #[default]
    Java,
    /// Android from 8.0 (API level 26) on: no `VarHandle`, no `Unsafe`, no walk of the stack.
    Android,
    /// CLDC 1.1, a JVM for small devices: memory is an array of words.
    Cldc,
}

/// What says the types of locals at branch targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frames {
    /// `StackMapTable`, of differences.
    Table,
    /// `StackMap`, of whole frames, as CLDC has it.
    Map,
}

/// The runtime's class with methods that a target's Java lacks.
const SUBSTITUTES: &str = "io/github/fettle/jvm/Substitutes";
/// The runtime's class that orders accesses of memory.
const FENCES: &str = "io/github/fettle/jvm/Fences";

impl Target {
    /// The version of class files.
    pub(crate) fn version(self) -> u16 {
        match self {
            Self::Java => 61,
            // Java 8, which has all that translated code needs.
            Self::Android => 52,
            // The last that older verifiers take without a `StackMapTable`, and CLDC takes.
            Self::Cldc => 48,
        }
    }

    /// What says the types at branch targets.
    pub(crate) fn frames(self) -> Frames {
        match self {
            Self::Java | Self::Android => Frames::Table,
            Self::Cldc => Frames::Map,
        }
    }

    /// The type of memory.
    pub(crate) fn memory(self) -> &'static str {
        match self {
            Self::Java | Self::Android => "[B",
            Self::Cldc => "[I",
        }
    }

    /// What the host throws where the program has a fault, which it may handle.
    pub(crate) fn faults(self) -> &'static [&'static str] {
        match self {
            Self::Java | Self::Android => {
                &["IndexOutOfBoundsException", "ArithmeticException", "StackOverflowError"]
            }
            Self::Cldc => &["IndexOutOfBoundsException", "ArithmeticException"],
        }
    }

    /// The class whose static method has the meaning that this one of Java has.
    pub(crate) fn class_of<'a>(self, class: &'a str, method: &str) -> &'a str {
        let is_fence = class == "java/lang/invoke/VarHandle";
        let substitute = match class {
            "java/lang/Integer" => true,
            "java/lang/Float" => method == "floatToRawIntBits",
            "java/lang/Double" => method == "doubleToRawLongBits",
            "java/lang/Math" => method.ends_with("Exact"),
            _ => false,
        };
        match self {
            Self::Android | Self::Cldc if is_fence => FENCES,
            Self::Cldc if substitute => SUBSTITUTES,
            _ => class,
        }
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "java" => Ok(Self::Java),
            "android" => Ok(Self::Android),
            "cldc" => Ok(Self::Cldc),
            _ => Err("one of java, android, cldc".into()),
        }
    }
}
