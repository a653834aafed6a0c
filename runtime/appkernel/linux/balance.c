/* Whether a thread is better off at home.
 *
 * A thread for whose calls and faults Linux needs longer than it runs itself gains nothing out there, and keeps Linux's
 * processors busier than at home: each event has its messages and, often, a change of tasks. So it comes home for a
 * while, and longer each time that it is found the same; the paper left this as future work (section 7). Times are
 * compared with each other, so that it does not matter how fast the machine is.
 */
#include <linux/minmax.h>

#include "fettle_smp.h"

/* So many events are looked at together. */
#define EVENTS 32

#define STAYS_LEAST 1000000ull
#define STAYS_MOST 128000000ull

void balance_begin(struct balance *balance, const struct thread *thread)
{
    balance->events = 0;
    balance->served = 0;
    balance->ran_before = thread->ran;
}

/* After an event: true if the last ones say that the thread is kernel-bound. */
bool balance_is_kernel_bound(struct balance *balance, const struct thread *thread)
{
    bool is_so;
    if (++balance->events < EVENTS)
        return false;
    is_so = balance->served > thread->ran - balance->ran_before;
    balance_begin(balance, thread);
    if (!is_so)
        balance->stays = STAYS_LEAST;
    return is_so;
}

/* For how long a thread that is kernel-bound stays home, ns. */
u64 balance_stay(struct balance *balance)
{
    u64 stay = max(balance->stays, STAYS_LEAST);
    balance->stays = min(stay * 2, STAYS_MOST);
    return stay;
}
