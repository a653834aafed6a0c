# lift
# A jump to another function ends this one; so does a conditional one, on one of its ways.
function other
    xor %eax, %eax
    ret
done other
function tail
    test %edi, %edi
    js other
    add $1, %edi
    jmp other
done tail
#> other: 1 blocks
#>   b0:
#>     xor eax,eax
#>     ret
#>     -> return
#> tail: 2 blocks
#>   b0:
#>     test edi,edi
#>     js other
#>     -> b1, conditional tail call of other
#>   b1:
#>     add edi,1
#>     jmp other
#>     -> tail call of other
