/* Before a jump through a table two registers are compared with limits: the later comparison, in the
   delay slot of the branch, has nothing to do with the table. */
#include <stdio.h>

int chosen(int index, int other);

__asm__(".text\n"
        ".set push\n"
        ".set noreorder\n"
        ".globl chosen\n"
        ".ent chosen\n"
        ".type chosen, @function\n"
        "chosen:\n"
        "sltiu $8, $4, 5\n"
        "beqz $8, 9f\n"
        "sltiu $9, $5, 2\n"
        "sll $10, $4, 2\n"
        "lui $11, %hi(places)\n"
        "addiu $11, $11, %lo(places)\n"
        "addu $11, $11, $10\n"
        "lw $11, 0($11)\n"
        "jr $11\n"
        "nop\n"
        "0: jr $31\n"
        "addiu $2, $9, 10\n"
        "1: jr $31\n"
        "addiu $2, $9, 20\n"
        "2: jr $31\n"
        "addiu $2, $9, 30\n"
        "3: jr $31\n"
        "addiu $2, $9, 40\n"
        "4: jr $31\n"
        "addiu $2, $9, 50\n"
        "9: jr $31\n"
        "addiu $2, $9, 90\n"
        ".end chosen\n"
        ".size chosen, . - chosen\n"
        ".set pop\n"
        ".section .rodata\n"
        ".align 2\n"
        "places: .word 0b, 1b, 2b, 3b, 4b\n"
        ".text\n");

int main(void) {
    for (int index = 0; index < 7; index++) printf("%d %d\n", chosen(index, 1), chosen(index, 7));
    return 0;
}
