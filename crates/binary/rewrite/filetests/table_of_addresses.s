# lift
# Computed goto: an array of labels, which the mask bounds.
function labels
    and $1, %edi
    lea 8f(%rip), %rax
    jmp *(%rax, %rdi, 8)
1:  mov $1, %eax
    ret
2:  mov $2, %eax
    ret
done labels
    .section .data.rel.ro, "aw"
    .p2align 3
8:  .quad 1b, 2b
#> labels: 3 blocks
#>   b0:
#>     and edi,1
#>     lea rax,[table 0]
#>     jmp qword [rax+rdi*8]
#>     -> b1, b2
#>   b1:
#>     mov eax,1
#>     ret
#>     -> return
#>   b2:
#>     mov eax,2
#>     ret
#>     -> return
#>   table 0: addresses, bounded, can be copied: b1 b2
