# lift
# Nothing says how many entries there are, and no other table begins behind: what lies there may be
# anything.
function unbounded
    lea 8f(%rip), %rax
    movslq (%rax, %rdi, 4), %rdx
    add %rax, %rdx
    jmp *%rdx
1:  mov $1, %eax
    ret
done unbounded
    .section .rodata
    .p2align 2
8:  .long 1b - 8b
    .long 0x7f000000
#> unbounded is left unmodified: an indirect jump whose targets are not certain
