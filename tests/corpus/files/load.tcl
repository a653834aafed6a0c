# Procedures, lists, dictionaries, regular expressions, catch, uplevel, coroutines, expressions.
proc fib {n} { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
puts [fib 18]
set in [open in.txt]; set text [read $in]; close $in
set count [dict create]
foreach word [regexp -all -inline {[a-z]{4,}} $text] { dict incr count $word }
puts [lrange [lsort -stride 2 -index 1 -integer -decreasing [dict filter $count value {[1-9][0-9]*}]] 0 1]
set caught 0
for {set n 0} {$n < 3000} {incr n} { if {[catch {error "no $n" {} [list N $n]} m o]} { incr caught [lindex [dict get $o -errorcode] 1] } }
puts $caught
coroutine next apply {{} { yield; set n 0; while 1 { yield [incr n 3] } }}
for {set n 0} {$n < 500} {incr n} { set last [next] }
puts $last
puts [expr {7 ** 200 % 1000003}] ; puts [format %.12g [expr {sin(1) * exp(2)}]]
proc up {} { uplevel 1 {incr here} } ; set here 1 ; up ; puts $here
puts [string length [string map {a bb e f} $text]]
