# lift
# The target comes from memory: it may be anywhere, this function included. Its original text stays whole,
# so control that comes back there is right, only not observed.
function jumps
    lea here(%rip), %rax
    add (%rdi), %rax
    jmp *%rax
here:
    ret
done jumps
#> jumps: 1 blocks
#>   b0:
#>     lea rax,[here]
#>     add rax,[rdi]
#>     jmp rax
#>     -> indirect tail call
