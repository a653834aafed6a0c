# emit blocks
# The comparison's flags are needed behind the start of a block, so the counter there may not change them.
function compares
    cmp %esi, %edi
    jmp 2f
    .p2align 4
1:  nop
2:  jg 3f
    mov $1, %eax
    ret
3:  mov $2, %eax
    ret
done compares
#> compares: 4 blocks
#>   b0:
#>     cmp edi,esi
#>     jmp b1
#>     -> b1
#>   b1:
#>     jg b3
#>     -> b2, b3
#>   b2:
#>     mov eax,1
#>     ret
#>     -> return
#>   b3:
#>     mov eax,2
#>     ret
#>     -> return
#> rewritten compares:
#>      0  inc qword <counter 0>
#>      9  cmp edi,esi
#>      b  jmp +0xd
#>      d  mov rax, <counter 1>
#>     16  lea rax,[rax+1]
#>     1a  mov <counter 1>
#>     23  jg +0x34
#>     25  inc qword <counter 2>
#>     2e  mov eax,1
#>     33  ret
#>     34  inc qword <counter 3>
#>     3d  mov eax,2
#>     42  ret
