# needs: gcc libsqlite3-0
# instead: tune -p 4711 => tune --time 0.3 --threshold 0 -p $(cat pid)
# instead: cc *.o -o server => cc *.o -o linked
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
gcc -O2 -c server.c -o server.o
cp /usr/lib/x86_64-linux-gnu/libsqlite3.so.0 .
mkdir probed
