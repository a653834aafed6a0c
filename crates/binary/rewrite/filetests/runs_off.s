# lift
# Control runs past the end, into nothing.
function runs_off
    mov $1, %eax
done runs_off
#> runs_off is left unmodified: control runs past its end
