# What runs in the guest. Each case prints a line: "case NAME: ok" or "case NAME: WRONG: why".

tracing=/sys/kernel/tracing
functions='vfs_read,vfs_write,ksys_read,ksys_write,pipe_*,anon_pipe_*,tcp_*,schedule,do_wait,do_wait_*,ep_*,do_epoll_*,schedule_*,try_to_wake_up,select_task_rq_fair,do_sys_openat2,path_openat,kernel_clone,do_exit,read_zero,read_iter_zero'

result() { # NAME EXPECTED GOT
    if [ "$2" = "$3" ]; then echo "case $1: ok"; else echo "case $1: WRONG: expected [$2], got [$3]"; fi
}

at_least() { # NAME LEAST GOT
    if [ "$3" -ge "$2" ] 2>/dev/null; then echo "case $1: ok"; else echo "case $1: WRONG: expected $2 or more, got [$3]"; fi
}

# Runs cases; where the guest's time goes is seen from outside.
timed() { # CASES ARGUMENTS...
    echo "$(cut -d. -f1 /proc/uptime) s: $*"
    "$@"
}

# All kinds of load at once; prints how many were not right.
loads() { # TIMES
    rm -f /tmp/loads.*
    for name in pipe tcp file fork epoll fault; do
        case $name in fork | fault) times=$(($1 / 10)) ;; *) times=$1 ;; esac
        load $name $times >/tmp/loads.$name 2>&1 &
    done
    wait
    cat /tmp/loads.* | grep -vc ': ok' || true
}

# How often a function was called, by what `fettle kernel count --json` printed.
calls_of() { # FILE FUNCTION
    tr '{' '\n' <"$1" | grep "\"calls\":.*\"name\":\"$2\"" | sed 's/.*"calls":\([0-9]*\).*/\1/'
}

text_sum() { peek sum _stext _etext; }

complaints() {
    dmesg | grep -E 'WARNING:|BUG:|Oops|detected stall|soft lockup|Call Trace|ftrace bug' | head -5
}

# Waits until rewritten text is installed.
await_installed() {
    tries=0
    until fettle status --kernel 2>/dev/null | grep -q ', installed'; do
        tries=$((tries + 1))
        [ $tries -gt 300 ] && return 1
        sleep 0.2
    done
}

case_check() {
    result check yes "$(fettle kernel check | grep -q 'can be counted' && echo yes)"
    before=$(text_sum)
    fettle kernel count no_such_function >/tmp/out 2>&1
    result unknown-function "2 1" "$? $(wc -l </tmp/out)"
    fettle undo --kernel >/dev/null
    result nothing-to-undo 1 $?
    result untouched "$before" "$(text_sum)"
}

# The same, by what `fettle report --json` says of a trace.
reported_calls() { # TRACE FUNCTION
    fettle report --json "$1" | tr -d ' \n' | tr '{' '\n' | grep "\"name\":\"$2\"" | sed 's/.*"calls":\([0-9]*\).*/\1/'
}

# Only the load reads /dev/zero, on whatever processor.
case_exact() {
    rm -rf /tmp/counts.fettle
    fettle record -q --kernel-functions 'read_zero,read_iter_zero' -o /tmp/counts.fettle -- \
        sh -c 'load read 3000 & load read 2000; wait' >/dev/null
    zero=$(reported_calls /tmp/counts.fettle read_zero)
    iterated=$(reported_calls /tmp/counts.fettle read_iter_zero)
    result exact-counts 5000 "$((${zero:-0} + ${iterated:-0}))"
}

# Blocks and edges follow calls; time of a call that sleeps is its own, whatever its processor does meanwhile.
# A number of a function's times: time_of FILE FUNCTION NAME
time_of() {
    tr '{' '\n' <$1 | grep "\"name\":\"$2\".*\"ns\"" | sed "s/.*\"$3\":\([0-9]*\).*/\1/"
}

case_modes() {
    for mode in blocks edges; do
        rm -rf /tmp/counts.fettle
        fettle kernel count 'read_zero,read_iter_zero' --mode $mode --json -o /tmp/counts.fettle -- load read 700 >/tmp/counts
        zero=$(calls_of /tmp/counts read_zero)
        iterated=$(calls_of /tmp/counts read_iter_zero)
        result exact-$mode 700 "$((${zero:-0} + ${iterated:-0}))"
        fettle report --blocks /tmp/counts.fettle >/tmp/blocks 2>&1
        at_least reported-$mode 1 "$(grep -c 'read_.*zero' /tmp/blocks)"
    done
    # One sleeps through all of it and ends, others are asleep when it is over, one works.
    load sleep 20 >/dev/null 2>&1 &
    sleepers=$!
    fettle kernel count --mode time --json 'hrtimer_nanosleep,do_nanosleep,vfs_read' -- \
        sh -c 'sleep 1; sleep 1; load sleep 8 >/dev/null 2>&1 & load read 3000; sleep 1; echo $! >/tmp/asleep' \
        >/tmp/counts
    kill $sleepers $(cat /tmp/asleep)
    ns=$(time_of /tmp/counts hrtimer_nanosleep ns)
    at_least time-of-a-sleep 2990000000 "${ns:-0}"
    own=$(time_of /tmp/counts hrtimer_nanosleep virtual_ns)
    # Threads that sleep do not run: a share that only a mistake would reach.
    result sleep-is-no-virtual-time yes "$([ "${own:-$ns}" -gt 0 ] && [ "${own:-$ns}" -lt $((ns / 5)) ] && echo yes)"
    at_least open-calls 1 "$(time_of /tmp/counts hrtimer_nanosleep not_ended)"
    result abandoned 0 "$(time_of /tmp/counts hrtimer_nanosleep abandoned)"
    wall=$(time_of /tmp/counts vfs_read ns)
    own=$(time_of /tmp/counts vfs_read virtual_ns)
    result virtual-is-part-of-wall yes "$([ "${own:-0}" -gt 0 ] && [ "$own" -le "$wall" ] && echo yes)"
    at_least interrupts 1 "$(sed 's/.*"interrupts_ns":\([0-9]*\).*/\1/' /tmp/counts)"
    result lost 0 "$(sed 's/.*"virtual_time_unknown":\([0-9]*\).*/\1/' /tmp/counts)"
}

# A kprobe by address and the tracer by name: how often the one was hit, and what the other found.
tracers() {
    echo "p:fettle_test $(peek address vfs_read)" >$tracing/kprobe_events
    echo 1 >$tracing/events/kprobes/fettle_test/enable
    load read 100 >/dev/null
    echo 0 >$tracing/events/kprobes/fettle_test/enable
    hits=$(awk '{print $2}' $tracing/kprobe_profile)
    echo >$tracing/kprobe_events
    echo vfs_read >$tracing/set_ftrace_filter
    echo function >$tracing/current_tracer
    load read 100 >/dev/null
    echo nop >$tracing/current_tracer
    records=$(grep -c vfs_read $tracing/set_ftrace_filter)
    echo >$tracing/set_ftrace_filter
}

# While functions are counted: loads, a static key, a kprobe by old address, the tracer by name.
held() {
    result loads-while-counted 0 "$(loads 300)"
    echo 1 >/proc/sys/kernel/sched_schedstats
    load pipe 50 >/dev/null
    echo 0 >/proc/sys/kernel/sched_schedstats
    result static-key ok "$(load pipe 50 >/dev/null && echo ok)"

    load sleep 1000 >/dev/null 2>&1 &
    sleeper=$!
    sleep 0.5
    result stack-has-new-names yes "$(grep -q '\[fettle_kernel\]' /proc/$sleeper/stack && echo yes)"
    kill -9 $sleeper

    tracers
    at_least kprobe-by-old-address 100 "$hits"
    result traced-by-name 2 "$records"
}

case_counted() {
    # The first use of some things changes the kernel's text for good (get_random_once).
    loads 20 >/dev/null
    tracers
    at_least kprobe-before 100 "$hits"
    before=$(text_sum)
    load sleep 6 >/tmp/sleepers 2>&1 &
    sleeping=$!
    fettle kernel count --json "$functions" -- sh -c '. /cases.sh; held' >/tmp/out 2>&1
    grep '^case' /tmp/out
    tail -n 1 /tmp/out >/tmp/counts
    at_least counted-reads 1000 "$(calls_of /tmp/counts vfs_read)"
    at_least counted-schedule 100 "$(calls_of /tmp/counts schedule)"
    result bytes-back "$before" "$(text_sum)"
    result module-gone 0 "$(grep -c fettle_kernel /proc/modules)"
    wait $sleeping
    result sleepers-woke "load sleep: ok" "$(cat /tmp/sleepers)"
}

# Installed and kept by a command that has ended; undone with threads asleep in it; then by rmmod alone.
case_kept() { # WAYS...
    before=$(text_sum)
    for way in "$@"; do
        # Deciding takes CPU time, which the loads leave to it.
        nice -n 19 sh -c '. /cases.sh; while [ ! -e /tmp/stop ]; do loads 100 >/dev/null; done' &
        loading=$!
        fettle tune --kernel --only "$functions" --time 1 --no-compare >/tmp/out 2>&1
        result tuned-$way 0 $?
        rm -f /tmp/sleepers
        load sleep 3 >/tmp/sleepers 2>&1 &
        sleeping=$!
        sleep 1
        result kept-$way yes "$(fettle status --kernel | grep -q 'installed, kept' && echo yes)"
        if [ $way = undo ]; then fettle undo --kernel >/tmp/out; else rmmod fettle_kernel; fi
        result gone-$way 0 $?
        result unloaded-$way 0 "$(grep -c fettle_kernel /proc/modules)"
        touch /tmp/stop
        wait $sleeping
        result woke-$way "load sleep: ok" "$(cat /tmp/sleepers)"
        wait $loading
        rm -f /tmp/stop
        result bytes-$way "$before" "$(text_sum)"
    done
}

# The value of a key of what a command printed as JSON.
value_of() { # FILE KEY
    tr ',{}' '\n\n\n' <"$1" | sed -n "s/^\"$2\":\\[*\"*\\([^\"]*\\)\"*$/\\1/p" | head -n 1
}

# One function and what it leads to, by its calls and by pointers, found while it runs.
case_root() {
    # As in case_counted: first uses change text for good, those of the tracer too.
    loads 20 >/dev/null
    tracers
    before=$(text_sum)
    # To attach a tracer to all functions takes a translated guest so long that the watchdog reports it.
    echo 0 >/proc/sys/kernel/soft_watchdog
    load tcp 100000000 >/dev/null 2>&1 &
    loading=$!
    fettle tune --kernel --root tcp_v4_rcv --time 1 --no-compare --json >/tmp/out 2>/tmp/said
    result root-tuned 0 $?
    at_least root-group 10 "$(tr ',' '\n' </tmp/out | grep -c '^"\|:\["')"
    echo 1 >/proc/sys/kernel/soft_watchdog
    result root-itself yes "$(grep -q '"tcp_v4_rcv"' /tmp/out && echo yes)"
    at_least root-promoted-calls 1 "$(sed 's/.*"promoted_calls":\([0-9]*\).*/\1/' /tmp/out)"
    result root-loads 0 "$(loads 50)"
    kill -9 $loading
    wait $loading 2>/dev/null
    fettle undo --kernel >/dev/null
    result root-bytes "$before" "$(text_sum)"
}

# Old and new in turns: kept if it is faster for certain, else taken out. Both are right.
case_compared() {
    before=$(text_sum)
    load pipe 100000000 >/dev/null 2>&1 &
    loading=$!
    nice -n -10 fettle tune --kernel --only 'pipe_*,vfs_*,ksys_*,anon_pipe_*' --time 1 --work-counter 'grep ctxt /proc/stat' \
        --rounds 5 --max-rounds 6 --turn 0.2 --json >/tmp/out 2>/tmp/said
    status=$?
    at_least compared-rounds 5 "$(value_of /tmp/out rounds)"
    if [ "$(value_of /tmp/out verdict)" = faster ]; then
        result compared-kept "0 yes" "$status $(fettle status --kernel | grep -q 'installed, kept' && echo yes)"
        fettle undo --kernel >/dev/null
    else
        result compared-reverted "1 0" "$status $(grep -c fettle_kernel /proc/modules)"
    fi
    kill -9 $loading
    wait $loading 2>/dev/null
    result compared-bytes "$before" "$(text_sum)"
}

# What was counted is kept, and laid out by it later without counting.
case_profile() {
    loads 20 >/dev/null
    before=$(text_sum)
    load pipe 100000000 >/dev/null 2>&1 &
    loading=$!
    fettle kernel tune --only 'pipe_*,vfs_*,ksys_*,anon_pipe_*' --time 1 --no-compare --save /tmp/kernel.profile --json >/tmp/out
    fettle undo --kernel >/dev/null
    kill -9 $loading
    wait $loading 2>/dev/null
    counted=$(tr -d ' ' </tmp/out | sed 's/.*"functions":\[\([^]]*\)\].*/\1/')
    fettle kernel tune --profile /tmp/kernel.profile --no-compare --json >/tmp/out
    result profile-installed 0 $?
    result profile-functions "$counted" "$(tr -d ' ' </tmp/out | sed 's/.*"functions":\[\([^]]*\)\].*/\1/')"
    result profile-loads 0 "$(loads 100)"
    fettle undo --kernel >/dev/null
    result profile-bytes "$before" "$(text_sum)"
    echo '{}' >/tmp/kernel.profile
    fettle kernel tune --profile /tmp/kernel.profile --no-compare >/tmp/out 2>&1
    result no-profile "2 1" "$? $(wc -l </tmp/out)"
}

# Compared again and again: faster stays, what is not is taken out and laid out anew. Ctrl-C ends it.
case_watched() {
    before=$(text_sum)
    load pipe 100000000 >/dev/null 2>&1 &
    loading=$!
    nice -n -10 fettle kernel tune --only 'pipe_*,vfs_*,ksys_*,anon_pipe_*' --time 1 --work-counter 'grep ctxt /proc/stat' \
        --rounds 5 --max-rounds 5 --turn 0.1 --watch 1 --json >/tmp/out 2>/tmp/said &
    client=$!
    tries=0
    until [ "$(wc -l </tmp/out)" -ge 3 ] || [ $tries -gt 150 ]; do tries=$((tries + 1)); sleep 1; done
    kill -TERM $client
    wait $client
    status=$?
    at_least watched-results 3 "$(wc -l </tmp/out)"
    result watched-ended "$([ $status = 0 ] && echo 1 || echo 0)" "$(grep -c fettle_kernel /proc/modules)"
    fettle undo --kernel >/dev/null
    kill -9 $loading
    wait $loading 2>/dev/null
    result watched-bytes "$before" "$(text_sum)"
}

# Where the text of a module's functions begins and ends.
sum_of_module() { # MODULE
    names=$(grep -E " [tT] ext4_.*\\[$1\\]" /proc/kallsyms | sort | awk '{print $3}')
    peek sum "$(echo "$names" | head -n 1)" "$(echo "$names" | tail -n 1)"
}

# The functions of a module: counted, laid out with those of the kernel; the module stays as long as that.
case_modules() {
    for name in crc16 mbcache jbd2 crc32c_generic ext4 loop; do insmod /modules/$name.ko; done
    mkdir -p /mnt
    mount -o loop /ext4.img /mnt
    loads 20 >/dev/null
    dd if=/dev/zero of=/mnt/warm bs=4096 count=50 conv=fsync 2>/dev/null
    before=$(text_sum) module_before=$(sum_of_module ext4)
    fettle kernel count 'ext4_*,__ext4_*,jbd2_*' --json -- dd if=/dev/zero of=/mnt/counted bs=4096 count=300 conv=fsync \
        >/tmp/counts 2>/tmp/said
    result module-counted 300 "$(calls_of /tmp/counts ext4_file_write_iter)"
    at_least module-journal 1 "$(calls_of /tmp/counts jbd2_journal_stop)"
    (while [ ! -e /tmp/stop ]; do dd if=/dev/zero of=/mnt/loop bs=4096 count=100 2>/dev/null; rm /mnt/loop; done) &
    loading=$!
    fettle kernel tune --only 'ext4_*,__ext4_*,jbd2_*,vfs_write,ksys_write' --time 2 --no-compare --json >/tmp/out 2>/tmp/said
    result module-tuned 0 $?
    at_least module-functions 30 "$(tr ',' '\n' </tmp/out | grep -c 'ext4_')"
    dd if=/dev/urandom of=/mnt/random bs=4096 count=200 2>/dev/null
    sum=$(md5sum </mnt/random)
    touch /tmp/stop
    wait $loading
    rm -f /tmp/stop
    sync
    umount /mnt
    result module-stays busy "$(rmmod ext4 2>/dev/null && echo gone || echo busy)"
    mount -o loop /ext4.img /mnt
    result module-content "$sum" "$(md5sum </mnt/random)"
    fettle undo --kernel >/dev/null
    result module-bytes "$before $module_before" "$(text_sum) $(sum_of_module ext4)"
    umount /mnt
    result module-goes gone "$(rmmod ext4 2>/dev/null && echo gone || echo busy)"
    fettle kernel count 'ext4_*' --duration 1s >/tmp/out 2>&1
    result module-gone "2 1" "$? $(wc -l </tmp/out)"
}

# A tracer keeps the return address into a counted function: undoing says so, takes the jumps back, and is whole as
# soon as the tracer has let go.
case_graph() {
    # As in case_counted: first uses change text for good.
    echo do_nanosleep >$tracing/set_ftrace_filter
    echo function_graph >$tracing/current_tracer
    load nap 10
    echo nop >$tracing/current_tracer
    echo >$tracing/set_ftrace_filter
    before=$(text_sum)
    fettle kernel count hrtimer_nanosleep --duration 1000s >/dev/null 2>&1 &
    counting=$!
    await_installed
    echo do_nanosleep >$tracing/set_ftrace_filter
    echo function_graph >$tracing/current_tracer
    load nap 25000 >/tmp/nap 2>&1 &
    napping=$!
    sleep 1
    fettle undo --kernel >/tmp/out 2>&1
    result graph-holds "2 yes" "$? $(grep -q 'tracer' /tmp/out && echo yes)"
    echo nop >$tracing/current_tracer
    echo >$tracing/set_ftrace_filter
    wait $napping
    result graph-sleeper "load nap: ok" "$(cat /tmp/nap)"
    fettle undo --kernel >/tmp/out 2>&1
    result graph-undone 0 $?
    kill $counting 2>/dev/null
    wait $counting 2>/dev/null
    result graph-bytes "$before" "$(text_sum)"
    result graph-unloaded 0 "$(grep -c fettle_kernel /proc/modules)"
}

# A livepatch comes: it finds the kernel as it was built, takes effect, and nothing is installed beside it.
case_livepatch() {
    fettle kernel count "$functions,cmdline_proc_show" --duration 1000s >/dev/null 2>&1 &
    counting=$!
    await_installed
    result livepatch-before no "$(grep -q patched /proc/cmdline && echo yes || echo no)"
    insmod /modules/livepatch.ko
    result livepatch-comes 0 $?
    result livepatch-effect patched "$(cat /proc/cmdline)"
    result livepatch-reverts "out" "$(fettle status --kernel --json | tr ',{}' '\n\n\n' | sed -n 's/^"state":"\(.*\)"/\1/p')"
    result livepatch-loads 0 "$(loads 50)"
    kill $counting
    wait $counting 2>/dev/null
    fettle kernel count vfs_read --duration 1s >/tmp/out 2>&1
    result livepatch-bars "2 yes" "$? $(grep -q 'livepatch' /tmp/out && echo yes)"
    echo 0 >/sys/kernel/livepatch/livepatch/enabled
    sleep 5
    rmmod livepatch
}

# Runs stressors of stress-ng, which check what they do; prints the names of those that failed.
stress() { # --class CLASS --seq 1 | --STRESSOR 1
    cd /tmp
    # `opcode` executes chance's instructions in user mode, and QEMU 7.2 faults in the kernel by them.
    stress-ng "$@" --timeout 1 --verify --oomable --maximize --vm-bytes 32m --temp-path /tmp --exclude opcode 2>&1 |
        sed -n 's/.* failed: [0-9]*: *//p; s/.*fail: *\[[0-9]*\] \([a-z0-9-]*\):.*/\1/p' | tr ' ' '\n' | grep '^[a-z]' | sort -u
}

counted() { # as `stress`
    fettle kernel count 's*,do_*,vfs_*,__*' -- sh -c ". /cases.sh; stress $* >/tmp/failed" >/tmp/out 2>/tmp/said
    echo $? >/tmp/status
    cat /tmp/failed
}

# All of stress-ng's stressors while thousands of functions are rewritten: what fails then fails without them, too.
case_stress() { # CLASSES...
    for class in "$@"; do
        stress --class $class --seq 1 >/tmp/plain
        counted --class $class --seq 1 >/tmp/counted
        result stress-$class-counted 0 "$(cat /tmp/status)"
        # Some fail now and then: what is new is tried again, alone, three times without rewritten text and three times with it.
        wrong=
        for name in $(grep -vxFf /tmp/plain /tmp/counted); do
            plain=$(for i in 1 2 3; do stress --$name 1; done | grep -c .)
            again=$(for i in 1 2 3; do counted --$name 1; done | grep -c .)
            echo "$name: failed $plain of 3 times without rewritten text, $again of 3 with it"
            [ "$again" -gt "$((plain + 1))" ] && wrong="$wrong $name"
        done
        result stress-$class '' "$wrong"
        echo "$class: $(sed -n 's/ counted for.*//p' /tmp/out) counted; fail anyway: $(sort -u /tmp/plain | tr '\n' ' ')"
    done
}

# The kernel's own tests that do not pass; they skip with 4.
kselftest() {
    for test in /kselftest/*; do
        timeout 120 $test >/dev/null 2>&1
        case $? in 0 | 4) ;; *) echo ${test##*/} ;; esac
    done
}

# The kernel's own tests of futexes, timers and sockets, without and with rewritten text.
case_kselftest() {
    kselftest >/tmp/plain
    fettle kernel count 'futex_*,do_futex,hrtimer*,do_nanosleep,*timer*,sock_*,inet*,tcp_*,udp_*,packet_*,unix_*' -- \
        sh -c '. /cases.sh; kselftest >/tmp/counted' >/tmp/out 2>/tmp/said
    result kselftest-counted 0 $?
    result kselftest '' "$(grep -vxFf /tmp/plain /tmp/counted)"
    echo "$(sed -n 's/ counted for.*//p' /tmp/out) counted, $(ls /kselftest | wc -l) tests; do not pass anyway: $(tr '\n' ' ' </tmp/plain)"
}

# A client that is killed leaves the kernel as it was.
case_killed() {
    before=$(text_sum)
    fettle kernel count "$functions" --duration 1000s >/dev/null 2>&1 &
    client=$!
    await_installed
    changed=$(text_sum)
    kill -9 $client
    wait $client 2>/dev/null
    sleep 1
    result killed-was-installed different "$([ "$before" = "$changed" ] && echo same || echo different)"
    result killed-is-undone "$before" "$(text_sum)"
    # The next one finds an idle module, and takes its place.
    fettle kernel count vfs_read -- load read 10 >/dev/null 2>&1
    result after-kill 0 $?
}

# So many functions at once, again and again, processors coming and going.
case_again() { # TIMES SEED
    before=$(text_sum)
    wrong=0
    seed=$2
    for round in $(seq "$1"); do
        seed=$(((seed * 1103515245 + 12345) % 2147483648))
        letter=$(echo abcdefghijklmnopqrstuvwxyz | cut -c $((seed / 65536 % 26 + 1)))
        echo "round $round: $letter*"
        fettle kernel count "$letter*" -- sh -c '. /cases.sh; echo 0 >/sys/devices/system/cpu/cpu1/online
            loads 100; echo 1 >/sys/devices/system/cpu/cpu1/online; loads 100' >/tmp/out 2>&1
        status=$? right=$(grep -c '^0$' /tmp/out) after=$(text_sum)
        [ "$status $right $after" = "0 2 $before" ] && continue
        echo "round $round ($letter*): $status $right $before $after $(head -n 3 /tmp/out)"
        wrong=$((wrong + 1))
    done
    result again 0 $wrong
}
