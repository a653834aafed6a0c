# needs: gcc
# instead: fettle profile of *.fettle => fettle profile of server.fettle
cat > server.c <<'C'
#include <stdio.h>
__attribute__((noinline)) int work(int x) { return x % 7 ? x * 3 : x / 2; }
int main(void) { int s = 0; for (int i = 0; i < 100000; i++) s += work(i); printf("%d\n", s); return 0; }
C
gcc -O1 server.c -o server
fettle record -q --mode edges -o server.fettle -- ./server > /dev/null
fettle profile of server.fettle -o monday.profile > /dev/null
cp monday.profile sunday.profile
