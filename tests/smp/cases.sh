# What runs in the guest. Each case prints a line: "case NAME: ok" or "case NAME: WRONG: why".

result() { # NAME EXPECTED GOT
    if [ "$2" = "$3" ]; then echo "case $1: ok"; else echo "case $1: WRONG: expected [$2], got [$3]"; fi
}

# Output and status of a command on Linux's processors and on lent ones.
same() { # NAME COMMAND...
    name=$1; shift
    here=$("$@" 2>&1; echo "status $?")
    there=$(fettle smp run -- "$@" 2>&1; echo "status $?")
    result "$name" "$here" "$there"
}

# The same without the command: the shell joins, and becomes the program. With `mixed` it comes home for its calls.
how=
fast() { # NAME COMMAND...
    name=$1; shift
    here=$( (exec "$@") 2>&1; echo "status $?")
    there=$( (echo join $how >/dev/fettle-smp; exec "$@") 2>&1; echo "status $?")
    result "$name" "$here" "$there"
}

lend() { fettle smp lend "$@" --module /fettle-smp.ko 2>&1; }

# Runs something in the background, and waits until it has made a file.
start() { # COMMAND...
    rm -f /tmp/ready
    "$@" &
    started=$!
    tries=0
    while [ ! -e /tmp/ready ] && [ $tries -lt 200 ]; do sleep 0.1; tries=$((tries + 1)); done
}

kernel_complaints() {
    dmesg | grep -E 'WARNING:|BUG:|Oops|detected stalls|soft lockup|Call Trace|its processor failed' | head -5
}

case_lend() {
    result lend "lent: 2-3" "$(lend 2-3)"
    result nproc-while-lent 2 "$(nproc)"
    echo 1 2>/dev/null >/sys/devices/system/cpu/cpu2/online && online=taken || online=refused
    result online-is-refused refused "$online"
    result lend-0 refused "$(lend 0 >/dev/null && echo lent || echo refused)"
    result lend-twice refused "$(lend 2 >/dev/null && echo lent || echo refused)"
}

case_programs() {
    same echo busybox echo hello
    same static busybox sh -c 'echo $((6 * 7)); exit 3'
    same dynamic dash -c 'echo one | cat; for i in 1 2 3; do echo $i; done | wc -l; x=$(echo sub); echo $x; exit 7'
    fettle smp run -- no-such-program 2>/dev/null
    result not-there 127 $?
    for program in /tests/programs/*; do
        fast ${program##*/} $program
    done
    fast radix /tests/measured/splash radix 2 65536
    fast fft /tests/measured/splash fft 2 4096
    fast lu /tests/measured/splash lu 2 96
    how=mixed
    for program in futexes processes signals; do
        fast mixed-$program /tests/programs/$program
    done
    how=
}

# Sum of a figure over lent processors.
figure() { # NAME
    fettle smp status --json | sed -n '/"processors"/,/"threads"/s/.*"'$1'": \([0-9]*\).*/\1/p' | awk '{ s += $1 } END { print s + 0 }'
}

# Calls and faults that go to Linux: of 8,392 first touches, 4,096 copies and 20,000 calls most do not.
case_quiet() {
    faults=$(figure faults) calls=$(figure calls)
    (echo join >/dev/fettle-smp; exec /tests/programs/quiet) >/dev/null
    faults=$(($(figure faults) - faults)) calls=$(($(figure calls) - calls))
    result few-faults few "$([ $faults -gt 200 ] && [ $faults -lt 1500 ] && echo few || echo $faults)"
    result few-calls few "$([ $calls -gt 10 ] && [ $calls -lt 200 ] && echo few || echo $calls)"
}

# A thread for which Linux has more to do than it has itself comes home, unless it has to stay out.
case_balance() {
    for how in '' mixed; do
        [ "$how" ] && expected=home || expected=out
        calls=$(figure calls)
        (echo join $how >/dev/fettle-smp; exec busybox dd if=/dev/zero of=/dev/null bs=16k count=20000 2>/dev/null)
        calls=$(($(figure calls) - calls))
        # It comes home by what its calls have cost so far, which a busy machine makes uncertain.
        if [ $calls -gt 40000 ]; then where=out; elif [ $calls -lt 20000 ]; then where=home; else where=$calls; fi
        result "calls-$how" "$expected" "$where"
    done
}

# Without the notifier stale translations must show, or the test of them says nothing. How often they do
# depends on when processors lose translations anyway, and the program may also hang or fall over them.
case_mutation() {
    echo "ignore-changes 1" >/dev/fettle-smp
    seen=no tries=0
    while [ $seen = no ] && [ $tries -lt 10 ]; do
        tries=$((tries + 1))
        (echo join >/dev/fettle-smp; exec busybox timeout -s KILL 30 /tests/programs/translations quick) >/tmp/stale
        status=$?
        case $status in 0|126|127) ;; *) seen=yes ;; esac
    done
    [ $seen = yes ] || echo "translations ended with $status, and said: $(cat /tmp/stale)"
    result mutation-is-seen yes $seen
    echo "ignore-changes 0" >/dev/fettle-smp
}

# The same for futexes: without waits that end when a thread comes home, turns must be lost.
case_waits() {
    calls=$(figure local_calls)
    (echo join >/dev/fettle-smp; exec /tests/measured/costs futex 2000) >/dev/null
    calls=$(($(figure local_calls) - calls))
    result futexes-are-local yes "$([ $calls -gt 4000 ] && echo yes || echo $calls)"
    echo "keep-waiting 1" >/dev/fettle-smp
    (echo join >/dev/fettle-smp; exec busybox timeout -s KILL 10 /tests/programs/futexes) >/dev/null 2>&1
    result lost-turns-are-seen 137 $?
    echo "keep-waiting 0" >/dev/fettle-smp
}

LOOP='>/tmp/ready; while :; do :; done'

# Many changes of memory under the eyes of another processor, with pages merged all the time.
case_changes() { # TIMES
    echo 1 >/sys/kernel/mm/ksm/run; echo 2 >/sys/kernel/mm/ksm/sleep_millisecs; echo 1000 >/sys/kernel/mm/ksm/pages_to_scan
    result changes "$1 changes, 0 stale" "$(echo join >/dev/fettle-smp; exec /tests/programs/changes $1 5)"
    result pages-were-merged yes "$([ "$(cat /sys/kernel/mm/ksm/full_scans)" -gt 0 ] && echo yes || echo no)"
    echo 0 >/sys/kernel/mm/ksm/run
    echo "ignore-changes 1" >/dev/fettle-smp
    (echo join >/dev/fettle-smp; exec busybox timeout -s KILL 60 /tests/programs/changes 500) >/tmp/stale 2>&1 && seen=no || seen=yes
    result stale-changes-are-seen yes $seen
    echo "ignore-changes 0" >/dev/fettle-smp
}

case_signals() {
    start fettle smp run -- dash -c "$LOOP"
    kill -9 $started; wait $started
    result killed 137 $?
    start fettle smp run -- dash -c "trap 'exit 3' TERM; $LOOP"
    kill $started; wait $started
    result handled 3 $?
    start fettle smp run -- dash -c "$LOOP"
    kill -STOP $started; sleep 0.5
    result stopped T "$(cut -d' ' -f3 /proc/$started/stat)"
    kill -CONT $started; sleep 0.5; kill -KILL $started; wait $started
    result killed-after-stop 137 $?
}

state_of() { # PID
    fettle smp status --json | sed -n '/"pid": '$1',/,/state/s/.*"state": "\(.*\)",/\1/p'
}

case_attach() {
    start dash -c "$LOOP"
    fettle smp attach $started; sleep 1
    result attached running "$(state_of $started)"
    fettle smp home $started; sleep 0.5
    result home "" "$(state_of $started)"
    kill $started; wait $started
    result ended-at-home 143 $?
}

# A user other than root, who has a right to one of the processors.
case_users() {
    mkdir -p /etc; echo 'other:x:1000:1000::/:/bin/dash' >>/etc/passwd
    as() { busybox start-stop-daemon -S -q -c other -x /bin/dash -- -c "$1" 2>&1; }
    result user-without-right refused "$(as 'echo status >/dev/fettle-smp && echo opened' | grep -q opened && echo opened || echo refused)"
    fettle smp allow 1000 3
    result user-runs "1 5 " "$(as 'fettle smp run -- dash -c "nproc; exit 5"; echo $?' | tr '\n' ' ')"
    result user-lends refused "$(as 'fettle smp lend 1 >/dev/null && echo lent || echo refused' | tail -1)"
    result user-takes-other refused "$(as 'fettle smp run --cpus 2 -- true && echo ran || echo refused' | tail -1)"
    start dash -c "$LOOP"
    result user-moves-other refused "$(as "fettle smp attach $started && echo moved || echo refused" | tail -1)"
    kill $started; wait $started
    fettle smp allow 1000 none
    result user-after refused "$(as 'echo status >/dev/fettle-smp && echo opened' | grep -q opened && echo opened || echo refused)"
}

case_give_back() {
    start fettle smp run -- dash -c '>/tmp/ready; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 5'
    fettle smp give-back
    result nproc-after 4 "$(nproc)"
    wait $started
    result goes-on-at-home 5 $?
    fettle smp run -- true 2>/dev/null
    result nothing-lent 2 $?
}

case_suspend() {
    lend 2-3 >/dev/null
    start fettle smp run -- dash -c "$LOOP"
    # Linux's own test of suspending goes all the way but for the sleep itself.
    echo devices >/sys/power/pm_test; echo freeze >/sys/power/state
    result suspend "0 4" "$? $(nproc)"
    kill $started; wait $started
    result lives-on-after-suspend 143 $?
}

# The machine stops for good while a program is out on every processor that can be lent.
stop_for_good() { # NAME COMMAND...
    dmesg -n 7
    lend 1-3
    start fettle smp run -- dash -c "$LOOP"
    echo "stopping: $1"; shift
    "$@"
    sleep 60
}

case_hold() {
    mkdir -p /var/lib/fettle/smp/$(uname -r); cp /fettle-smp.ko /var/lib/fettle/smp/$(uname -r)/
    result run-lend 4 "$(fettle smp run --lend 1-3 -- dash -c 'echo 4')"
    result nproc-after-run 4 "$(nproc)"
    start fettle smp run --lend 1-3 -- dash -c "$LOOP"
    result nproc-held 1 "$(nproc)"
    kill -9 $started; wait $started; sleep 1
    result nproc-after-kill 4 "$(nproc)"
    killall -9 dash
}

case_unload() {
    lend 2-3 >/dev/null
    start fettle smp run -- dash -c "$LOOP"
    rmmod fettle-smp
    result unload-under-load "0 4" "$? $(nproc)"
    kill $started; wait $started
    result lives-on 143 $?
}

case_again() { # TIMES
    i=0
    while [ $i -lt $1 ]; do
        i=$((i + 1))
        lend 1-3 >/dev/null; got="$(nproc) $(fettle smp run -- dash -c 'echo x | cat') "
        fettle smp give-back; got="$got$(nproc)"
        [ "$got" = "1 x 4" ] || break
    done
    result again-$1 "1 x 4" "$got"
}
