//! Static methods of the runtime and of the Java library that expressions call.

use crate::ir::{Helper, Ty};

const fn helper(
    class: &'static str,
    name: &'static str,
    descriptor: &'static str,
    result: Option<Ty>,
) -> Helper {
    let (memory, thread, effect, calls) = (false, false, false, false);
    Helper { class, name, descriptor, result, memory, thread, effect, calls }
}

/// With the memory as its first argument.
const fn of_memory(name: &'static str, descriptor: &'static str, result: Option<Ty>) -> Helper {
    Helper { memory: true, ..helper("Mips", name, descriptor, result) }
}

/// With the thread as its first argument.
const fn of_thread(name: &'static str, descriptor: &'static str, result: Option<Ty>) -> Helper {
    Helper { thread: true, ..helper("Mips", name, descriptor, result) }
}

/// What single RISC-V instructions do beside computing, with the thread as its first argument.
const fn risc_v_thread(name: &'static str, descriptor: &'static str, result: Option<Ty>) -> Helper {
    Helper { thread: true, effect: true, ..helper("RiscV", name, descriptor, result) }
}

/// A part of the unwinder, which calls the program's personalities.
const fn unwinder(name: &'static str, descriptor: &'static str, result: Option<Ty>) -> Helper {
    let plain = helper("Unwinder", name, descriptor, result);
    Helper { thread: true, effect: true, calls: true, ..plain }
}

macro_rules! helpers {
    ($($name:ident = $value:expr;)*) => {
        $(pub static $name: Helper = $value;)*
    };
}

helpers! {
    INT_TO_FLOAT = helper("java/lang/Float", "intBitsToFloat", "(I)F", Some(Ty::F));
    FLOAT_TO_INT = helper("Mips", "bits", "(F)I", Some(Ty::I));
    REVERSE_BYTES = helper("java/lang/Integer", "reverseBytes", "(I)I", Some(Ty::I));
    ADD_EXACT = Helper { effect: true, ..helper("java/lang/Math", "addExact", "(II)I", Some(Ty::I)) };
    SUB_EXACT = Helper {
        effect: true,
        ..helper("java/lang/Math", "subtractExact", "(II)I", Some(Ty::I))
    };
    LWL = of_memory("lwl", "(II)I", Some(Ty::I));
    LWR = of_memory("lwr", "(II)I", Some(Ty::I));
    LWL_BIG = of_memory("lwlBig", "(II)I", Some(Ty::I));
    LWR_BIG = of_memory("lwrBig", "(II)I", Some(Ty::I));
    SWL = Helper { effect: true, ..of_memory("swl", "(II)V", None) };
    SWR = Helper { effect: true, ..of_memory("swr", "(II)V", None) };
    SWL_BIG = Helper { effect: true, ..of_memory("swlBig", "(II)V", None) };
    SWR_BIG = Helper { effect: true, ..of_memory("swrBig", "(II)V", None) };
    LOAD_LINKED = Helper { effect: true, ..of_memory("loadLinked", "(I)I", Some(Ty::I)) };
    LOAD_LINKED_BIG = Helper { effect: true, ..of_memory("loadLinkedBig", "(I)I", Some(Ty::I)) };
    SWAP = Helper { effect: true, ..of_memory("storeConditional", "(III)I", Some(Ty::I)) };
    SWAP_BIG = Helper { effect: true, ..of_memory("storeConditionalBig", "(III)I", Some(Ty::I)) };
    READ_CONTROL = Helper { effect: true, ..of_thread("readControl", "(I)I", Some(Ty::I)) };
    WRITE_CONTROL = Helper { effect: true, ..of_thread("writeControl", "(II)V", None) };
    LONG_JUMP = Helper { effect: true, ..helper("Mips", "longJump", "(II)V", None) };
    JUMP_AWAY = Helper { effect: true, ..of_thread("jumpAway", "(III)V", None) };
    LANDED_STACK = Helper { effect: true, ..of_thread("landedStack", "()I", Some(Ty::I)) };
    RAISE = unwinder("raise", "(II)I", Some(Ty::I));
    RETHROW = unwinder("rethrow", "(II)I", Some(Ty::I));
    RESUME = unwinder("resume", "(I)V", None);
    FORCE = unwinder("force", "(IIII)V", None);
    READY = Helper { effect: true, ..of_thread("ready", "()V", None) };
    HARDWARE = of_thread("hardware", "(I)I", Some(Ty::I));
    CVT_W_S = of_thread("convertWord", "(F)I", Some(Ty::I));
    CVT_W_D = of_thread("convertWord", "(D)I", Some(Ty::I));
    CVT_L_S = of_thread("convertLong", "(F)J", Some(Ty::J));
    CVT_L_D = of_thread("convertLong", "(D)J", Some(Ty::J));
    TRUNC_W_S = helper("Mips", "truncateWord", "(F)I", Some(Ty::I));
    TRUNC_W_D = helper("Mips", "truncateWord", "(D)I", Some(Ty::I));
    ROUND_W_S = helper("Mips", "roundWord", "(IF)I", Some(Ty::I));
    ROUND_W_D = helper("Mips", "roundWord", "(ID)I", Some(Ty::I));
    ROUND_L_S = helper("Mips", "roundLong", "(IF)J", Some(Ty::J));
    SEMIHOST = risc_v_thread("semihost", "(II)I", Some(Ty::I));
    SET_TLS = risc_v_thread("setThreadPointer", "(I)V", None);
    READ_CSR = risc_v_thread("readControl", "(I)I", Some(Ty::I));
    WRITE_CSR = risc_v_thread("writeControl", "(II)V", None);
    ATOMIC = Helper {
        memory: true,
        effect: true,
        ..helper("RiscV", "atomic", "(III)I", Some(Ty::I))
    };
    DIVIDE = helper("RiscV", "divide", "(II)I", Some(Ty::I));
    DIVIDE_UNSIGNED = helper("RiscV", "divideUnsigned", "(II)I", Some(Ty::I));
    REMAINDER = helper("RiscV", "remainder", "(II)I", Some(Ty::I));
    REMAINDER_UNSIGNED = helper("RiscV", "remainderUnsigned", "(II)I", Some(Ty::I));
    TO_INT = risc_v_thread("toInt", "(ID)I", Some(Ty::I));
    TO_UNSIGNED = risc_v_thread("toUnsigned", "(ID)I", Some(Ty::I));
    CLASS_S = helper("RiscV", "classify", "(F)I", Some(Ty::I));
    CLASS_D = helper("RiscV", "classify", "(D)I", Some(Ty::I));
    SIGN_S = helper("java/lang/Math", "copySign", "(FF)F", Some(Ty::F));
    SIGN_D = helper("java/lang/Math", "copySign", "(DD)D", Some(Ty::D));
    SIGN_XOR_S = helper("RiscV", "xorSign", "(FF)F", Some(Ty::F));
    SIGN_XOR_D = helper("RiscV", "xorSign", "(DD)D", Some(Ty::D));
    MIN_S = helper("RiscV", "min", "(FF)F", Some(Ty::F));
    MIN_D = helper("RiscV", "min", "(DD)D", Some(Ty::D));
    MAX_S = helper("RiscV", "max", "(FF)F", Some(Ty::F));
    MAX_D = helper("RiscV", "max", "(DD)D", Some(Ty::D));
    FMA_S = helper("java/lang/Math", "fma", "(FFF)F", Some(Ty::F));
    FMA_D = helper("java/lang/Math", "fma", "(DDD)D", Some(Ty::D));
    ROUND_L_D = helper("Mips", "roundLong", "(ID)J", Some(Ty::J));
}

/// Loads of the most and of the least significant bytes of a word, and whether those come first in
/// memory.
pub static LOAD_HALVES: [(&Helper, &Helper, bool); 2] =
    [(&LWL, &LWR, false), (&LWL_BIG, &LWR_BIG, true)];

/// The same of stores.
pub static STORE_HALVES: [(&Helper, &Helper, bool); 2] =
    [(&SWL, &SWR, false), (&SWL_BIG, &SWR_BIG, true)];
