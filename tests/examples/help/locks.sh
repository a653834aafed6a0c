# needs: root gcc python3
# instead: pigz -k big.tar => sh -c 'exit 0'
# instead: 1234 => $(cat pid)
# instead: 10s => 300ms
cat > server.c <<'C'
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int rounds;
static void *work(void *x)
{
    for (int i = 0; rounds == 0 || i < rounds; i++) {
        pthread_mutex_lock(&lock);
        usleep(100);
        pthread_mutex_unlock(&lock);
    }
    return x;
}
int main(int argc, char **argv)
{
    pthread_t threads[2];
    rounds = argc > 1 ? 0 : 50;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    (void)argv;
    return 0;
}
C
gcc -O2 -pthread server.c -o server
./server for-ever > /dev/null & echo $! > pid
fettle record -q --locks -o run.fettle -- ./server > /dev/null
cleanup 'kill $(cat pid)'
