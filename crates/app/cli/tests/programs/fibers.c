// A coroutine begins with its argument in a register: the switch to its stack takes it from there, as
// Crystal's does, and returns to the coroutine's first instruction.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void change(void **from, void **to);

__asm__(
    ".text\n"
    ".type change, @function\n"
    "change:\n"
    "    push %rdi; push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov (%rsi), %rsp\n"
    "    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; pop %rdi\n"
    "    ret\n"
    ".size change, . - change\n");

struct fiber {
    void *pointer;
    long value;
};

static void *home;
static struct fiber fibers[8];

__attribute__((noinline)) static void run(struct fiber *fiber) {
    for (;;) {
        fiber->value = fiber->value * 3 + 1;
        change(&fiber->pointer, &home);
    }
}

int main(void) {
    for (int i = 0; i < 8; i++) {
        void **top = (void **)((char *)aligned_alloc(64, 65536) + 65536);
        *--top = NULL;
        *--top = (void *)run;
        *--top = &fibers[i];
        fibers[i] = (struct fiber){top - 6, i};
    }
    for (int turn = 0; turn < 10; turn++)
        for (int i = 0; i < 8; i++) change(&home, &fibers[i].pointer);
    for (int i = 0; i < 8; i++) printf("%ld\n", fibers[i].value);
    return 5;
}
