/* Orders of locks, one by argument: two that can deadlock, and seven that cannot. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t r = PTHREAD_RWLOCK_INITIALIZER, s = PTHREAD_RWLOCK_INITIALIZER;
static volatile int met;
static void run(void *(*f)(void *), void *(*g)(void *), int joined) {
    pthread_t t, u;
    pthread_create(&t, 0, f, 0);
    if (joined) pthread_join(t, 0); else usleep(200000);
    pthread_create(&u, 0, g, 0);
    if (!joined) pthread_join(t, 0);
    pthread_join(u, 0);
}
static void *ab(void *x) { pthread_mutex_lock(&a); pthread_mutex_lock(&b); pthread_mutex_unlock(&b); pthread_mutex_unlock(&a); return x; }
static void *ba(void *x) { pthread_mutex_lock(&b); pthread_mutex_lock(&a); pthread_mutex_unlock(&a); pthread_mutex_unlock(&b); met = 1; return x; }
static void *gab(void *x) { pthread_mutex_lock(&gate); ab(x); pthread_mutex_unlock(&gate); return x; }
static void *gba(void *x) { pthread_mutex_lock(&gate); ba(x); pthread_mutex_unlock(&gate); return x; }
static void *ab_stays(void *x) { ab(x); while (!met) usleep(1000); return x; }
static void *both(void *x) { ab(x); ba(x); return x; }
static void *nothing(void *x) { return x; }
#define RW(name, l1, f1, l2, f2) static void *name(void *x) { pthread_rwlock_##f1(&l1); pthread_rwlock_##f2(&l2); pthread_rwlock_unlock(&l2); pthread_rwlock_unlock(&l1); return x; }
RW(rs_rw, r, rdlock, s, wrlock) RW(sr_rw, s, rdlock, r, wrlock)
RW(rs_rr, r, rdlock, s, rdlock) RW(sr_rr, s, rdlock, r, rdlock)
RW(rs_wr, r, wrlock, s, rdlock) RW(sr_rw2, s, rdlock, r, wrlock)
static void *try_ab(void *x) { pthread_mutex_lock(&a); if (!pthread_mutex_trylock(&b)) pthread_mutex_unlock(&b); pthread_mutex_unlock(&a); return x; }
static void *try_ba(void *x) { pthread_mutex_lock(&b); if (!pthread_mutex_trylock(&a)) pthread_mutex_unlock(&a); pthread_mutex_unlock(&b); return x; }
static pthread_mutex_t *heap;
/* Nothing but this says that `ha` is over, and no thread waits for its end. */
static volatile int over;
static void *ha(void *x) { pthread_mutex_lock(heap); pthread_mutex_lock(&a); pthread_mutex_unlock(&a); pthread_mutex_unlock(heap); over = 1; return x; }
static void *ah(void *x) { pthread_mutex_lock(&a); pthread_mutex_lock(heap); pthread_mutex_unlock(heap); pthread_mutex_unlock(&a); return x; }
int main(int c, char **v) {
    const char *w = c > 1 ? v[1] : "";
    if (!strcmp(w, "abba")) run(ab, ba, 0);
    else if (!strcmp(w, "together")) run(ab_stays, ba, 0);
    else if (!strcmp(w, "rwrw")) run(rs_rw, sr_rw, 0);
    else if (!strcmp(w, "single")) run(both, nothing, 0);
    else if (!strcmp(w, "readwrite")) run(rs_wr, sr_rw2, 0);
    else if (!strcmp(w, "joined")) run(ab, ba, 1);
    else if (!strcmp(w, "gate")) run(gab, gba, 0);
    else if (!strcmp(w, "readers")) run(rs_rr, sr_rr, 0);
    else if (!strcmp(w, "reuse")) {
        heap = malloc(sizeof *heap); pthread_mutex_init(heap, 0);
        pthread_t t; pthread_create(&t, 0, ha, 0); while (!over) usleep(1000);
        pthread_mutex_t *old = heap; pthread_mutex_destroy(heap); free(heap); heap = malloc(sizeof *heap);
        if (heap != old) return 3;
        pthread_mutex_init(heap, 0);
        pthread_t u; pthread_create(&u, 0, ah, 0); pthread_join(t, 0); pthread_join(u, 0);
    } else if (!strcmp(w, "try")) run(try_ab, try_ba, 0);
    else return 2;
    return 0;
}
