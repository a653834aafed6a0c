# lift
# A jump into the middle of an instruction: two readings of the same bytes.
function overlaps
    test %edi, %edi
    je 1f + 1
1:  mov $0xc3c3c3c3, %eax
    ret
done overlaps
#> overlaps is left unmodified: a jump into the middle of an instruction
