/* The upper half of a function's address waits on the stack, and the lower half is added where it is
   called: GCC does this in large functions. Nothing else names these functions. */
#include <stdio.h>

int both(void);

__asm__(".text\n"
        ".set push\n"
        ".set noreorder\n"
        ".ent direct\n"
        ".type direct, @function\n"
        "direct:\n"
        "jr $31\n"
        "addiu $2, $4, 30\n"
        ".end direct\n"
        ".size direct, . - direct\n"
        ".ent hidden\n"
        ".type hidden, @function\n"
        "hidden:\n"
        "jr $31\n"
        "addiu $2, $4, 7\n"
        ".end hidden\n"
        ".size hidden, . - hidden\n"
        ".globl both\n"
        ".ent both\n"
        ".type both, @function\n"
        "both:\n"
        "addiu $29, $29, -40\n"
        "sw $31, 36($29)\n"
        "addiu $8, $29, 16\n" /* a way to the stack that is not followed */
        "lui $25, %hi(direct)\n"
        "sw $25, 24($29)\n"
        "lui $25, %hi(hidden)\n"
        "sw $25, 12($8)\n"
        "lw $25, 24($29)\n"
        "addiu $25, $25, %lo(direct)\n"
        "jalr $25\n"
        "li $4, 5\n"
        "lw $25, 28($29)\n"
        "addiu $25, $25, %lo(hidden)\n"
        "jalr $25\n"
        "or $4, $2, $0\n"
        "lw $31, 36($29)\n"
        "jr $31\n"
        "addiu $29, $29, 40\n"
        ".end both\n"
        ".size both, . - both\n"
        ".set pop\n");

int main(void) {
    printf("%d\n", both());
    return 0;
}
