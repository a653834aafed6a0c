/* Hand-written functions that are passed values in r11 and in the flags, as OpenSSL's are. */
#include <stdio.h>

long from_call(long a);
long from_jump(long a);
long from_branch(long a);

__asm__(".text\n"
        ".type hidden, @function\n"
        "hidden:\n"
        "    movl $0, %eax\n"
        "    setz %al\n"
        "    leaq (%rax,%r11), %rax\n"
        "    ret\n"
        ".size hidden, .-hidden\n"
        /* Passes on what it is passed. */
        ".type between, @function\n"
        "between:\n"
        "    leaq (%rdi), %rdi\n"
        "    jmp hidden\n"
        ".size between, .-between\n"
        ".globl from_call\n"
        ".type from_call, @function\n"
        "from_call:\n"
        "    movl $1000, %r11d\n"
        "    testq %rdi, %rdi\n"
        "    js 1f\n"
        "    cmpq $5, %rdi\n"
        "    jmp 2f\n"
        "1:  movl $2000, %r11d\n"
        "    cmpq $-5, %rdi\n"
        "2:  call between\n"
        "    ret\n"
        ".size from_call, .-from_call\n"
        ".globl from_jump\n"
        ".type from_jump, @function\n"
        "from_jump:\n"
        "    movl $30, %r11d\n"
        "    cmpq $5, %rdi\n"
        "    jmp hidden\n"
        ".size from_jump, .-from_jump\n"
        ".globl from_branch\n"
        ".type from_branch, @function\n"
        "from_branch:\n"
        "    movl $400, %r11d\n"
        "    cmpq $5, %rdi\n"
        "    jle between\n"
        "    ret\n"
        ".size from_branch, .-from_branch\n");

int main(void)
{
    for (long i = -7; i < 8; i++)
        printf("%ld %ld %ld %ld\n", i, from_call(i), from_jump(i), from_branch(i < 6 ? i : 5));
    return 0;
}
