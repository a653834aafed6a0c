# needs: root lua5.4 make gcc python3 sqlite3
# instead: 1234 => $(cat pid)
# instead: -- python3 => -- /usr/bin/python3
# instead: 10s => 300ms
# instead: --payload 1024 -p => --payload 1024 --duration 300ms -p
# not run: fettle record --to: it takes a collector; crates/app/cli/tests/collect.rs has one
cat > script.lua <<'LUA'
local t = {}
for i = 1, 2000 do t[i] = ("%d"):format(i * 7 % 1000) end
table.sort(t)
print(#t)
LUA
cat > server.c <<'C'
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int handleRequest(unsigned seed)
{
    int values[256];
    for (int i = 0; i < 256; i++) values[i] = (int)((seed = seed * 1103515245u + 12345u) >> 8);
    qsort(values, 256, sizeof values[0], compare);
    return values[0];
}
int main(int argc, char **argv)
{
    long sum = 0;
    for (long i = 0; argc > 1 || i < 200; i++) sum += handleRequest((unsigned)i);
    printf("%ld\n", sum);
    return 0;
}
C
gcc -O2 server.c -o server
./server for-ever > /dev/null & echo $! > pid
cleanup 'kill $(cat pid)'
printf 'all:\n\t@echo made\n' > Makefile
echo 'import hashlib; print(hashlib.sha256(b"a").hexdigest())' > client.py
echo 'a needle' > hay
sqlite3 my.db 'create table t(a)'
