# emit count
# A switch as GCC writes it: a bound, and 32-bit distances from the table.
function switches
    cmp $2, %edi
    ja 9f
    mov %edi, %edi
    lea 8f(%rip), %rax
    movslq (%rax, %rdi, 4), %rdx
    add %rax, %rdx
    jmp *%rdx
1:  mov $10, %eax
    ret
2:  mov $20, %eax
    ret
9:  xor %eax, %eax
    ret
done switches
    .section .rodata
    .p2align 2
8:  .long 1b - 8b, 2b - 8b, 9b - 8b
#> switches: 5 blocks
#>   b0:
#>     cmp edi,2
#>     ja b4
#>     -> b1, b4
#>   b1:
#>     mov edi,edi
#>     lea rax,[table 0]
#>     movsxd rdx,[rax+rdi*4]
#>     add rdx,rax
#>     jmp rdx
#>     -> b2, b3, b4
#>   b2:
#>     mov eax,0Ah
#>     ret
#>     -> return
#>   b3:
#>     mov eax,14h
#>     ret
#>     -> return
#>   b4:
#>     xor eax,eax
#>     ret
#>     -> return
#>   table 0: distances, bounded, can be copied: b2 b3 b4
#> rewritten switches:
#>      0  inc qword <accumulator +16>
#>      9  cmp edi,2
#>      c  ja +0x2c
#>      e  mov edi,edi
#>     10  lea rax, <copy of table 0>
#>     17  movsxd rdx,[rax+rdi*4]
#>     1b  add rdx,rax
#>     1e  jmp rdx
#>     20  mov eax,0Ah
#>     25  ret
#>     26  mov eax,14h
#>     2b  ret
#>     2c  xor eax,eax
#>     2e  ret
