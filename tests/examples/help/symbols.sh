# needs: gcc
# not run: fettle symbols --core: a core file of this process is not there; crates/app/cli/tests/tuned.rs makes one
# instead: 4711 => $(cat pid)
# instead: luaV => handle
# not run: gdb -p: gdb would wait for its user; crates/app/cli/tests/attach.rs starts it
# not run: perf record: it would record until Ctrl-C; crates/app/cli/tests/attach.rs reads what perf reads
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
fettle tune -p $(cat pid) --time 0.3 --threshold 0 --no-compare > /dev/null 2>&1
cleanup 'fettle undo $(cat pid)'
