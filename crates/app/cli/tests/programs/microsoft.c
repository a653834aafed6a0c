/* Functions of Microsoft's ABI: they keep rsi, rdi and ten vector registers for their callers, some of
 * them without touching these themselves. A caller by a function pointer relies on it.
 */
#include <execinfo.h>
#include <stdio.h>

#define MICROSOFT __attribute__((ms_abi))

static volatile double sum;
static int depth;

/* Of the System V ABI, so its callers save what it may change. */
__attribute__((noinline)) void adds(long n)
{
    void *frames[64];
    depth = backtrace(frames, 64);
    for (long i = 0; i < n; i++)
        sum += (double)i;
}

MICROSOFT __attribute__((noinline)) long saves(long n)
{
    adds(n);
    return n + 1;
}

/* Its frame is aligned: where registers are saved depends on the stack pointer. */
MICROSOFT __attribute__((noinline, force_align_arg_pointer)) long aligns(long n)
{
    volatile char bytes[n];
    bytes[0] = 1;
    adds(n);
    return n + bytes[0];
}

static MICROSOFT long (*volatile pointer)(long) = saves;

MICROSOFT __attribute__((noinline)) long passes(long n)
{
    return pointer(n + 1) + 1;
}

/* Calls a function of Microsoft's ABI; its result, or -1 if a register was not kept. */
long keeps(MICROSOFT long (*function)(long));
__asm__(".globl keeps\n"
        ".type keeps, @function\n"
        "keeps: .cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset rbp, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register rbp\n"
        "sub $32, %rsp\n"
        "mov %rdi, %rax\n"
        "mov $0x1111, %esi\n"
        "mov $0x2222, %edi\n"
        "movq %rsi, %xmm6\n"
        "movq %rdi, %xmm15\n"
        "mov $3, %ecx\n"
        "call *%rax\n"
        "cmp $0x1111, %rsi\n"
        "jne 1f\n"
        "cmp $0x2222, %rdi\n"
        "jne 1f\n"
        "movq %xmm6, %rdx\n"
        "cmp %rsi, %rdx\n"
        "jne 1f\n"
        "movq %xmm15, %rdx\n"
        "cmp %rdi, %rdx\n"
        "je 2f\n"
        "1: mov $-1, %rax\n"
        "2: leave\n"
        ".cfi_def_cfa rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size keeps, . - keeps\n");

int main(void)
{
    for (int i = 0; i < 4; i++) {
        printf("%ld ", keeps(saves));
        printf("%d ", depth);
        printf("%ld ", keeps(aligns));
        printf("%d ", depth);
        printf("%ld ", keeps(passes));
        printf("%d\n", depth);
    }
    return 0;
}
