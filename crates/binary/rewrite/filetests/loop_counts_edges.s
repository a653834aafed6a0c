# emit edges
# Of a loop's edges only those outside a spanning tree have counters.
function loops
    xor %eax, %eax
1:  add %edi, %eax
    sub $1, %edi
    jnz 1b
    ret
done loops
#> loops: 3 blocks
#>   b0:
#>     xor eax,eax
#>     -> b1
#>   b1:
#>     add eax,edi
#>     sub edi,1
#>     jne b1
#>     -> b2, b1
#>   b2:
#>     ret
#>     -> return
#> rewritten loops:
#>      0  xor eax,eax
#>      2  add eax,edi
#>      4  sub edi,1
#>      7  jne +0x17
#>      d  inc qword <counter 0>
#>     16  ret
#>     17  inc qword <counter 1>
#>     20  jmp +0x2
