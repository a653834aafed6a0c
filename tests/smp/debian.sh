# Programs of Debian, in the guest: each on Linux's and on lent processors. A program that this
# machine does not have is left out, and said so.

try() { # NAME PROGRAM ARGUMENTS...
    name=$1; program=/usr/bin/$2; shift 2
    # By the path: the shell has programs of the same names in itself.
    if [ -x $program ]; then fast "$name" $program "$@"; else echo "left out: $name, no $program"; fi
}

case_debian() {
    cd /tmp
    i=0; while [ $i -lt 3000 ]; do echo "line $i of $((i * 7919 % 1009)) words"; i=$((i + 1)); done >text
    cp text copy; echo changed >>copy
    try bash bash -c 'a=(3 1 2); for x in "${a[@]}"; do echo $((x ** 3)); done | sort; [[ abc =~ b ]] && echo yes; exit 4'
    try bash-pipeline bash -c 'set -o pipefail; cat text | grep 7 | wc -l; false | true; echo ${PIPESTATUS[@]}'
    try bash-coprocess bash -c 'coproc cat; echo hi >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x'
    try bash-trap bash -c 'trap "echo bye" EXIT; kill -TERM $$'
    try python python3 -c 'import sys; print(sum(i * i for i in range(20000)), sys.version_info[:2])'
    try python-threads python3 -c 'import threading; r = []; t = [threading.Thread(target=lambda i=i: r.append(i)) for i in range(8)]; [x.start() for x in t]; [x.join() for x in t]; print(sorted(r))'
    try python-processes python3 -c 'import subprocess; print(subprocess.run(["busybox", "echo", "child"], capture_output=True).stdout)'
    try python-signal python3 -c 'import signal, os; signal.signal(signal.SIGUSR1, lambda s, f: print("got", s)); os.kill(os.getpid(), signal.SIGUSR1)'
    try python-error python3 -c 'raise SystemExit(3)'
    try python-json python3 -c 'import json, re; print(json.dumps({"a": [1, 2, {"b": re.sub("x", "y", "xx")}]}))'
    try perl perl -e 'my %h; $h{$_ % 7} += $_ for 1 .. 10000; print "$_ $h{$_}\n" for sort keys %h; exit 2'
    try perl-fork perl -e 'if (my $p = fork) { waitpid $p, 0; print $? >> 8, "\n" } else { exit 6 }'
    try sqlite sqlite3 :memory: 'create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000) insert into t select x, x * x % 97 from c; select b, count(*) from t group by b order by 2 desc, 1 limit 5;'
    try sqlite-file dash -c 'rm -f d; sqlite3 d "create table t(a); insert into t values (1), (2);"; sqlite3 d "select sum(a) from t"; rm d'
    try redis dash -c 'redis-server --port 0 --unixsocket /tmp/r.s --save "" --daemonize no >/dev/null & n=0; while [ ! -S /tmp/r.s ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; redis-cli -s /tmp/r.s set a 41; redis-cli -s /tmp/r.s incr a; redis-cli -s /tmp/r.s lpush l 3 1 2; redis-cli -s /tmp/r.s sort l; redis-cli -s /tmp/r.s shutdown nosave; wait; rm -f /tmp/r.s'
    try openssl-speed dash -c 'openssl speed -seconds 1 -bytes 64 sha256 2>/dev/null | grep -c ^sha256'
    try xz dash -c 'xz -c text | xz -dc | cksum'
    try xz-threads dash -c 'xz -T3 --block-size=16384 -c text | xz -T3 -dc | cksum'
    try gzip dash -c 'gzip -c text | gzip -dc | cksum'
    try bzip2 dash -c 'bzip2 -c text | bzip2 -dc | cksum'
    try openssl-digest openssl dgst -sha256 text
    try openssl-cipher dash -c 'openssl enc -aes-256-ctr -K 00 -iv 00 -in text 2>/dev/null | cksum'
    try sha256sum sha256sum text
    try md5sum md5sum text copy
    try sort sort -k4n -k2 text
    try sort-threads sort --parallel=3 -S 64k text
    try grep grep -c -E '(1|3)7 of' text
    try sed sed -n 's/line \(.*\) of/\1:/;5,9p' text
    try awk mawk '{ s += $4 } END { print s, NR }' text
    try diff diff text copy
    try cmp cmp text copy
    try tar dash -c 'tar -cf - text copy | tar -tf -'
    try find find / -maxdepth 2 -name 't*' -not -path '/proc/*' -not -path '/sys/*'
    try cut cut -d' ' -f2 text
    try head head -c 100 text
    try tail tail -n 3 text
    try wc wc text copy
    try od od -An -tx1 -N 64 text
    try bc dash -c 'echo "2^64 + s(0)" | bc -l'
    try make make -s -f /tests/data/Makefile all
    try cc1 cc1 -quiet -ffreestanding -O2 -o - /tests/data/sieve.c
    try as dash -c 'cc1 -quiet -ffreestanding -O1 -o s.s /tests/data/sieve.c && as -o s.o s.s && cksum <s.o'
    try env env -i A=1 B=2 env
    try timeout timeout -s TERM 1 sleep 30
    try nice nice -n 3 nice
    try stdbuf dash -c 'yes | head -n 1000 | cksum'
    cd /
}

case_debuggers() {
    if command -v strace >/dev/null; then
        here=$(strace -f -e trace=write dash -c 'echo traced' 2>&1 | grep -c 'write(1, "traced')
        there=$( (echo join >/dev/fettle-smp; exec strace -f -e trace=write dash -c 'echo traced') 2>&1 | grep -c 'write(1, "traced')
        result strace "$here" "$there"
    fi
    if command -v gdb >/dev/null; then
        start fettle smp run -- dash -c "$LOOP"
        got=$(gdb -nx -batch -p $started -ex 'info registers rip' -ex 'print $_siginfo.si_signo' -ex detach 2>/dev/null | grep -c 'rip  *0x')
        result gdb-attach 1 "$got"
        kill -9 $started; wait $started
    fi
    echo /tmp/core >/proc/sys/kernel/core_pattern; rm -f /tmp/core
    (echo join >/dev/fettle-smp; ulimit -c unlimited; exec dash -c 'kill -SEGV $$')
    result core-dump "core" "$([ -s /tmp/core ] && echo core)"
}
