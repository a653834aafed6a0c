/* A function's address waits on the stack, and the caller knows that the function leaves its argument
   alone: GCC's -fipa-ra makes such code where registers are short. */
#include <stdio.h>

int twice(void);
int counts;

__asm__(".text\n"
        ".set push\n"
        ".set noreorder\n"
        ".ent counter\n"
        ".type counter, @function\n"
        "counter:\n" /* adds its argument, which stays in $4; $2 and $3 stay, too */
        "lui $8, %hi(counts)\n"
        "lw $9, %lo(counts)($8)\n"
        "addu $9, $9, $4\n"
        "jr $31\n"
        "sw $9, %lo(counts)($8)\n"
        ".end counter\n"
        ".size counter, . - counter\n"
        ".globl twice\n"
        ".ent twice\n"
        ".type twice, @function\n"
        "twice:\n"
        "addiu $29, $29, -40\n"
        "sw $31, 36($29)\n"
        "lui $25, %hi(counter)\n"
        "addiu $25, $25, %lo(counter)\n"
        "sw $25, 24($29)\n"
        "li $4, 5\n"
        "li $3, 70\n"
        "lw $25, 24($29)\n"
        "jalr $25\n"
        "nop\n"
        "lw $25, 24($29)\n"
        "jalr $25\n"
        "nop\n"
        "addu $2, $3, $4\n"
        "lw $31, 36($29)\n"
        "jr $31\n"
        "addiu $29, $29, 40\n"
        ".end twice\n"
        ".size twice, . - twice\n"
        ".set pop\n");

int main(void) {
    float values[16];
    for (int i = 0; i < 16; i++) {
        __builtin_prefetch(values + i);
        values[i] = i * 0.5f;
    }
    printf("%d %d %g\n", twice(), counts, values[3]);
    return 0;
}
