//! Functions that are left unmodified because code outside of them counts on where theirs is.

use fettle_image::Image;
use fettle_lift::{Lifted, SkipReason};

/// What the C compiler's driver makes of this source, lifted.
fn lifted(extension: &str, source: &str, flags: &[&str]) -> Lifted {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, binary) = (dir.path().join(format!("a.{extension}")), dir.path().join("a.out"));
    std::fs::write(&file, source).expect("a file");
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(flags).arg("-o").args([&binary, &file]).status();
    assert!(built.expect("a C compiler").success(), "{flags:?}");
    let image = Image::parse(std::fs::read(&binary).expect("built")).expect("an ELF");
    fettle_lift::lift(&image)
}

/// Names of the functions that are left unmodified for this reason, in order of address.
fn left_unmodified(lifted: &Lifted, reason: SkipReason) -> Vec<&str> {
    let skipped = lifted.skipped.iter().filter(|s| s.reason == reason);
    skipped.filter_map(|s| s.name.as_deref()).collect()
}

/// Functions of assembly, one behind the other.
const FUNCTION: &str = r#"
    .macro function name
    .p2align 4
    .globl \name
    .hidden \name
    .type \name, @function
    \name:
    .endm
    .macro done name
    .size \name, . - \name
    .endm
    .text
"#;

/// Two calls of the kernel, each between two labels, and code that asks whether a thread is there, once by
/// `lea` and once by slots that the loader fills in. Then what is none of it: a function's address and
/// where it ends, and an array of labels that the function jumps through itself.
const BETWEEN: &str = r#"
    function by_lea
    mov %rdi, %rax
    1: mov %rsi, %rdi
    syscall
    2: ret
    done by_lea
    function by_slot
    mov %rsi, %rdi
    syscall
    .globl end_of_by_slot
    .hidden end_of_by_slot
    end_of_by_slot: ret
    done by_slot
    function asks
    mov 0xa8(%rdx), %rax
    lea 1b(%rip), %rcx
    cmp %rcx, %rax
    jb 3f
    lea 2b(%rip), %rcx
    cmp %rcx, %rax
    jae 3f
    lea by_slot(%rip), %rcx
    cmp %rcx, %rax
    jb 3f
    lea asks(%rip), %rcx
    cmp %rcx, %rax
    jb 3f
    cmp slot(%rip), %rax
    jae 3f
    mov $1, %eax
    3: ret
    done asks
    function labels
    and $1, %edi
    lea array(%rip), %rax
    jmp *(%rax, %rdi, 8)
    4: mov $1, %eax
    ret
    5: mov $2, %eax
    ret
    done labels
    .data
    .p2align 3
    slot: .quad end_of_by_slot
    array: .quad 4b, 5b
"#;

#[test]
fn of_which_others_know_the_middle() {
    let lifted = lifted("s", &[FUNCTION, BETWEEN].concat(), &["-nostdlib", "-shared"]);
    assert_eq!(left_unmodified(&lifted, SkipReason::NamedInside), ["by_lea", "by_slot"]);
    assert_eq!((lifted.functions.len(), lifted.skipped.len()), (2, 2), "{:?}", lifted.skipped);
}

/// The one call of a thread that can be cancelled: glibc's, and musl's up to labels.
const CANCELLED: &str = r#"
    function cancelled
    mov (%rdi), %eax
    testb $8, (%rdi)
    jne 1f
    mov %rdi, %r11
    mov %rsi, %rax
    mov %rdx, %rdi
    mov %rcx, %rsi
    mov %r8, %rdx
    mov %r9, %r10
    mov 8(%rsp), %r8
    mov 16(%rsp), %r9
    mov %r11, 8(%rsp)
    syscall
    ret
    1: jmp cancels
    done cancelled
    function cancels
    push %rbx
    mov %r11, 8(%rsp)
    pop %rbx
    syscall
    ret
    done cancels
"#;

/// Programs at fixed addresses compare with numbers: nothing else shows it.
#[test]
fn that_a_thread_is_cancelled_in() {
    for flags in [["-nostdlib", "-shared"], ["-nostdlib", "-no-pie"]] {
        let source = [FUNCTION, CANCELLED, ".globl _start\n_start: ret\n"].concat();
        let lifted = lifted("s", &source, &flags);
        assert_eq!(left_unmodified(&lifted, SkipReason::NamedInside), ["cancelled"], "{flags:?}");
        assert_eq!(lifted.skipped.len(), 1, "{:?}", lifted.skipped);
    }
}

/// Functions that need little room on the stack, much, and none.
const ROOM: &str = "
    int sum(const char *);
    int little(void) { char b[64]; return sum(b); }
    int much(void) { char b[70000]; return sum(b); }
    __attribute__((no_split_stack)) int usual(void) { char b[64]; return sum(b); }
    __attribute__((no_split_stack)) int sum(const char *b) { return b[0]; }
    __attribute__((no_split_stack)) void __morestack_non_split(void) {}
    __attribute__((no_split_stack)) void __morestack(void) {}
    __attribute__((no_split_stack)) void _start(void) {}
";

/// `__morestack` returns one byte behind where it is to, at the `ret` of the original.
#[test]
fn whose_stack_is_split() {
    for flags in [["-O2", "-fcf-protection=full"], ["-O0", "-fcf-protection=none"]] {
        let lifted = lifted("c", ROOM, &[&flags[..], &["-fsplit-stack", "-nostdlib"]].concat());
        assert_eq!(
            left_unmodified(&lifted, SkipReason::SplitStack),
            ["little", "much"],
            "{flags:?}"
        );
        assert_eq!(lifted.skipped.len(), 2, "{:?}", lifted.skipped);
    }
}

/// gold makes sure that there is room for functions that do not ask for it: it puts `stc` and a long
/// `nop` in the question's place.
#[test]
fn whose_stack_gold_splits() {
    let made = "
        function splits
        stc
        .byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
        jb 1f
        2: ret
        1: mov $24, %r10d
        mov $0, %r11d
        call grows
        ret
        jmp 2b
        done splits
        function grows
        .byte 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
        ret
        done grows
    ";
    let lifted = lifted("s", &[FUNCTION, made].concat(), &["-nostdlib", "-shared"]);
    assert_eq!(left_unmodified(&lifted, SkipReason::SplitStack), ["splits"]);
    assert_eq!(lifted.skipped.len(), 1, "{:?}", lifted.skipped);
}

/// What adds one to a number of the processor that runs it, unless the kernel comes between: what the
/// kernel goes on with then stands in the function, or in a section of its own.
const RESTARTABLE: &str = r#"
    #include <linux/rseq.h>
    #include <stddef.h>
    extern const ptrdiff_t __rseq_offset;
    #define AREA ((struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset))
    #define SECTION(before, after) \
        ".pushsection __rseq_cs, \"aw\"\n.balign 32\n" \
        "9: .long 0, 0\n.quad 1f, 2f - 1f, 4f\n.popsection\n" \
        "3: lea 9b(%%rip), %%rax\nmov %%rax, %[cs]\n" \
        "1: mov %[cpu], %%eax\nincq (%[numbers], %%rax, 8)\n2:\n" \
        before ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n4: jmp 3b\n" after
    #define ADDS(name, before, after) \
        __attribute__((noinline)) void name(long *numbers) { \
            struct rseq *area = AREA; \
            __asm__ volatile (SECTION(before, after) : [cs] "+m"(area->rseq_cs) \
                : [cpu] "m"(area->cpu_id), [numbers] "r"(numbers) : "rax", "memory", "cc"); \
        }
    ADDS(within, "jmp 5f\n", "5:\n")
    ADDS(apart, ".pushsection __rseq_failure, \"ax\"\n", ".popsection\n")
    unsigned signature(void) { return 0x53053053; }
    int main(void) {
        static long numbers[4096];
        within(numbers);
        apart(numbers);
        return signature() == 0;
    }
"#;

#[test]
fn that_the_kernel_restarts() {
    for flags in [["-O2", "-pie", "-fPIE"], ["-O2", "-no-pie", "-fno-pie"], ["-O2", "-pie", "-s"]] {
        let lifted = lifted("c", RESTARTABLE, &flags);
        let restartable = lifted.skipped.iter().filter(|s| s.reason == SkipReason::Restartable);
        // Two, and where the kernel leads to out of the one that lies apart, if that is known to be entered.
        assert!((2..=3).contains(&restartable.count()), "{flags:?}: {:?}", lifted.skipped);
        if !flags.contains(&"-s") {
            assert_eq!(left_unmodified(&lifted, SkipReason::Restartable), ["within", "apart"]);
        }
        let plain = lifted.functions.iter().filter(|f| f.name.as_deref() == Some("signature"));
        assert!(flags.contains(&"-s") || plain.count() == 1, "{flags:?}");
    }
}

/// V8's way from C++ into its own code, and what its code begins with, of which only an address is known.
/// What switches stacks puts its stack pointer into memory, too, but no unwinder looks for frames there.
const ENTERS: &str = r#"
    .p2align 6
    first:
    push %r13
    mov %rdi, %r13
    call *8(%r13)
    pop %r13
    ret
    .p2align 6
    enters:
    .cfi_startproc
    push %rbp
    mov %rsp, %rbp
    push %r13
    mov %rdi, %r13
    push \slot
    mov %rsp, \slot
    call called
    pop \slot
    pop %r13
    pop %rbp
    ret
    .cfi_endproc
    called:
    mov %r13, %rdi
    jmp *8(%r13)
    .p2align 4
    switches:
    .cfi_startproc
    push %rbx
    push (%rdi)
    pop %rbx
    mov %rsp, 8(%rdi)
    mov (%rsi), %rsp
    pop %rbx
    ret
    .cfi_endproc
    .data
    .p2align 3
    .quad first, switches
"#;

#[test]
fn whose_frames_are_in_a_chain() {
    for slot in ["0x108(%r13)", "(%r13)", "%fs:0x40", "-0x80(%r13,%rcx,8)"] {
        let source = [FUNCTION, &ENTERS.replace("\\slot", slot)].concat();
        let lifted = lifted("s", &source, &["-nostdlib", "-shared", "-s"]);
        let reasons: Vec<_> = lifted.skipped.iter().map(|s| s.reason).collect();
        assert_eq!(reasons, [SkipReason::FramesByAddress; 2], "{slot}: {:?}", lifted.skipped);
        assert_eq!(lifted.functions.len(), 1, "{slot}: what switches stacks is lifted");
    }
}
