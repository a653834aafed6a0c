# needs: gcc lua5.4
# instead: tune -p 4711 => tune --time 0.3 --turn 0.02 -p $(cat pid)
# instead: --rounds 40 => --hot 0.05
# instead: --time 0.3 --turn 0.02 -p $(cat pid) --samples --time 20s => --turn 0.02 -p $(cat pid) --samples --time 1
# instead: redis-cli info stats | grep total_commands => grep syscw /proc/$(cat pid)/io
# instead: -- ./server --port 80 => -- ./server
# any status: fettle tune -p
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
    for (long i = 0; argc > 1 || i < 200; i++) {
        sum += handleRequest((unsigned)i);
        if (argc > 1) { printf("%ld\n", sum); fflush(stdout); }
    }
    printf("%ld\n", sum);
    return 0;
}
C
gcc -O2 server.c -o server
./server for-ever > /dev/null & echo $! > pid
cleanup 'kill $(cat pid)'
