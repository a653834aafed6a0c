/* A function that ends in an instruction which faults, as a rule: behind it lies the next one. With
 * memory at address 0, which only some may have, control falls through into that. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

int aborts(int x);

/* What is compiled for a store to a null pointer with nothing behind it. */
__asm__(".globl aborts\n.type aborts, @function\n"
        "aborts: .cfi_startproc\n"
        "test %edi, %edi\njs 1f\nlea 1(%rdi), %eax\nret\n"
        "1: movl %edi, 1\n"
        ".cfi_endproc\n.size aborts, .-aborts\n"
        ".globl behind\n.type behind, @function\n"
        "behind: .cfi_startproc\n"
        "lea -7(%rdi), %eax\nnop\nnop\nret\n"
        ".cfi_endproc\n.size behind, .-behind\n");

static sigjmp_buf back;

static void handler(int signal)
{
    siglongjmp(back, signal);
}

int main(void)
{
    int sum = 0, faults = 0;
    signal(SIGSEGV, handler);
    for (int i = 0; i < 100; i++)
        sum += aborts(i);
    for (int i = 0; i < 10; i++) {
        if (sigsetjmp(back, 1) == 0)
            sum += aborts(-1 - i);
        else
            faults++;
    }
    printf("%d, %d faults\n", sum, faults);
    void *low = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int i = 0; i < 10 && low == 0; i++)
        sum += aborts(-1 - i);
    printf("%d, memory there: %d\n", sum, low == 0);
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    munmap(0, 4096);
    return aborts(-1);
}
