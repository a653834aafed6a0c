# Where the core begins: a stack, and floating point switched on.
.section .text.start, "ax"
.globl _start
_start:
  la sp, stack_top
  li t0, 0x2000
  csrs mstatus, t0
  call main
1:
  j 1b

.bss
.align 4
.space 65536
stack_top:
