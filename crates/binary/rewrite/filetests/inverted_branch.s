# emit plain reversed
# In another order of blocks a branch is inverted, and a jump is added where control fell through.
function picks
    test %edi, %edi
    je 1f
    mov $1, %eax
    ret
1:  mov $2, %eax
    ret
done picks
#> picks: 3 blocks
#>   b0:
#>     test edi,edi
#>     je b2
#>     -> b1, b2
#>   b1:
#>     mov eax,1
#>     ret
#>     -> return
#>   b2:
#>     mov eax,2
#>     ret
#>     -> return
#> rewritten picks:
#>      0  test edi,edi
#>      2  jne +0xa
#>      4  mov eax,2
#>      9  ret
#>      a  mov eax,1
#>      f  ret
