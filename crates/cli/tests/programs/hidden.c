/* Hand-written functions that are passed values in r11 and in the flags, as OpenSSL's are, and that
   leave values in rdi and rsi for the function that is called next. */
#include <stdio.h>

long from_call(long a);
long from_jump(long a);
long from_branch(long a);
long handed_on(long a);
long handed_on_to_strange(long a);

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
        ".size from_branch, .-from_branch\n"
        ".type leaves, @function\n"
        "leaves:\n"
        "    leaq 7(%rdi), %rdi\n"
        "    movl $100, %esi\n"
        "    xorl %r8d, %r8d\n"
        "    xorl %r9d, %r9d\n"
        "    ret\n"
        ".size leaves, .-leaves\n"
        ".type finds, @function\n"
        "finds:\n"
        "    leaq (%rdi,%rsi), %rax\n"
        "    ret\n"
        ".size finds, .-finds\n"
        /* Passes on what it finds. */
        ".type goes_on, @function\n"
        "goes_on:\n"
        "    jmp finds\n"
        ".size goes_on, .-goes_on\n"
        /* Left as it is, for what it would end with. */
        ".type strange, @function\n"
        "strange:\n"
        "    cmpq $-1, %rsi\n"
        "    je 1f\n"
        "    leaq (%rdi,%rsi,2), %rax\n"
        "    ret\n"
        "1:  iretq\n"
        ".size strange, .-strange\n"
        ".globl handed_on\n"
        ".type handed_on, @function\n"
        "handed_on:\n"
        "    call leaves\n"
        "    call goes_on\n"
        "    ret\n"
        ".size handed_on, .-handed_on\n"
        ".globl handed_on_to_strange\n"
        ".type handed_on_to_strange, @function\n"
        "handed_on_to_strange:\n"
        "    call leaves\n"
        "    call strange\n"
        "    ret\n"
        ".size handed_on_to_strange, .-handed_on_to_strange\n");

int main(void)
{
    for (long i = -7; i < 8; i++)
        printf("%ld %ld %ld %ld %ld %ld\n", i, from_call(i), from_jump(i),
               from_branch(i < 6 ? i : 5), handed_on(i), handed_on_to_strange(i));
    return 0;
}
