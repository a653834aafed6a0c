/* fettle_restart.h: threads of your C or C++ program that a watcher may begin anew.
 *
 *     #include "fettle_restart.h"
 *
 *     FETTLE_RESTART(worker, "web.worker", 7, 5);     // once, at file scope
 *
 *     void *work(void *arg) {
 *         if (FETTLE_RESTARTED(worker)) put_right();  // 0 at first, then how often it was begun anew
 *         for (;;) serve();
 *     }
 *
 *     fettle_restarts_off();                          // around what has to be done as a whole
 *     fettle_restarts_on();
 *
 * A rule of `fettle watch` with `restart thread "web.worker"` sends the thread a signal, wherever it is: in a
 * loop, in a wait. It goes on behind FETTLE_RESTARTED as after a longjmp: in that function, whose local
 * variables that were changed since then have to be volatile, and which must not have returned. What the
 * thread holds by then it goes on to hold: a mutex, memory, an open file; what it was about in the C library
 * (malloc) may be half done. So switch restarts off around what uses such things, or put it right behind
 * FETTLE_RESTARTED. Destructors of C++ objects are not called.
 *
 * Who asks is known by the kernel: processes of the same user, and root. Without FETTLE_SENSORS in the environment no
 * watcher finds the thread. The signal is FETTLE_RESTART_SIGNAL; a program that uses it itself cannot have this.
 *
 * The idea. The counter of restarts is a scalar sensor, and each slot of a sensor names its thread.
 *
 * Apache-2.0 OR MIT.
 */
#ifndef FETTLE_RESTART_H
#define FETTLE_RESTART_H

#include "fettle.h"
#include <setjmp.h>
#include <signal.h>

/* The signal by which a thread is asked to begin anew (crates/tune/watch/src/restart.rs). */
#define FETTLE_RESTART_SIGNAL 16 /* SIGSTKFLT, which Linux never sends */

/* Where a thread begins anew. */
struct fettle_restart_point {
    sigjmp_buf at;
    int armed;           /* `at` is set */
    int off;             /* so many fettle_restarts_off without their fettle_restarts_on */
    volatile int asked;  /* while they were off */
    int times;
};

/* One for each thread, in all files of a program. */
__attribute__((weak)) __thread struct fettle_restart_point fettle_restart_point;

/* Defines what threads are called that begin anew, and what counts how often they have begun. */
#define FETTLE_RESTART(id, name, major, minor) FETTLE_SCALAR(id, name, major, minor)

/* Where the thread begins anew from here on; how often it has. */
#define FETTLE_RESTARTED(id)                                                                       \
    (sigsetjmp(fettle_restart_point.at, 1) == 0 ? fettle__restart_ready()                           \
                                                : fettle__restart_again(),                          \
     FETTLE_ADD(id, 1), fettle_restart_point.times)

__attribute__((unused)) static void fettle__restart(int number, siginfo_t *info, void *context) {
    struct fettle_restart_point *point = &fettle_restart_point;
    (void)number;
    (void)info;
    (void)context;
    if (!point->armed) return;
    if (point->off > 0) {
        point->asked = 1;
        return;
    }
    siglongjmp(point->at, 1);
}

__attribute__((unused)) static void fettle__restart_ready(void) {
    struct sigaction action;
    __builtin_memset(&action, 0, sizeof action);
    action.sa_sigaction = fettle__restart;
    action.sa_flags = SA_SIGINFO;
    sigaction(FETTLE_RESTART_SIGNAL, &action, NULL);
    fettle_restart_point.times = 0;
    fettle_restart_point.off = 0;
    fettle_restart_point.asked = 0;
    fettle_restart_point.armed = 1;
}

__attribute__((unused)) static void fettle__restart_again(void) {
    fettle_restart_point.asked = 0;
    fettle_restart_point.times++;
}

/* From here on the thread is not begun anew until fettle_restarts_on; these may be nested. */
static inline void fettle_restarts_off(void) { fettle_restart_point.off++; }

/* It may be again; what was asked for meanwhile happens now. */
static inline void fettle_restarts_on(void) {
    struct fettle_restart_point *point = &fettle_restart_point;
    if (--point->off == 0 && point->asked && point->armed) siglongjmp(point->at, 1);
}

/* A thread that leaves the function of its FETTLE_RESTARTED says so first. */
static inline void fettle_restart_ends(void) { fettle_restart_point.armed = 0; }

#endif
