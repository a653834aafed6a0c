/* Private futexes between threads that are out.
 *
 * While all threads of an address space are out, no task can call Linux about its private futexes but through its
 * proxy. So waits are known here alone, and wakes, too, while Linux has no call about futexes at hand. Each space has a set of threads that wait, a bitmap; as with
 * ready threads, the side that takes a bit out has the thread, so there is no lock.
 *
 * Nothing is missed: a thread is in the set before it looks at the word (and at what Linux says of the space) for
 * the last time, and who wakes has changed the word before it looks into the set. Linux does the same: before a
 * thread comes home, or a call about futexes is run in Linux, it says so and then wakes all that wait here. They look
 * at their words, as everyone has to that was woken by a futex (a wake without a cause is allowed), and call again.
 */
#include "kernel.h"

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FUTEX_PRIVATE 128
#define FUTEX_REALTIME 256

#define BITS_ANY 0xffffffff
#define ADDRESS_MOST 0x7ffffffff000
#define ERROR_AGAIN (-11l)

static int is_local(u32 space)
{
    return LOAD(shared->futexes_are_local[space]) != 0;
}

/* The thread that has waited longest at an address, or -1. */
static int longest(u32 space, u64 address)
{
    u64 first = ~0ul;
    int found = -1;
    u32 word;
    for (word = 0; word < THREAD_WORDS; word++) {
        u64 bits = LOAD(shared->waiting[space][word]);
        for (; bits; bits &= bits - 1) {
            u32 index = word * 64 + (u32)__builtin_ctzl(bits);
            const struct thread *thread = thread_at(index);
            if (thread->futex == address && thread->turn < first) {
                first = thread->turn;
                found = (int)index;
            }
        }
    }
    return found;
}

static long wake_at(struct processor *cpu, u32 space, u64 address, u32 most)
{
    long woken = 0;
    while ((u64)woken < most) {
        int index = longest(space, address);
        if (index < 0)
            break;
        if (ready_claim(shared->waiting[space], (u32)index)) {
            wake(cpu, thread_at((u32)index));
            woken++;
        }
    }
    return woken;
}

static enum answer given(struct processor *cpu, struct thread *thread, long result)
{
    thread->registers.ax = (u64)result;
    thread->local_calls++;
    cpu->local_calls++;
    return ANSWER_GIVEN;
}

/* Takes the thread back, or leaves it to who was faster. */
static enum answer reconsider(struct processor *cpu, struct thread *thread, u32 space, long result)
{
    if (!ready_claim(shared->waiting[space], index_of(thread)))
        return ANSWER_LATER;
    STORE(thread->state, THREAD_RUNNING);
    STORE(cpu->running, index_of(thread) + 1);
    thread->since = now();
    return result ? given(cpu, thread, result) : ANSWER_NONE;
}

static enum answer wait_at(struct processor *cpu, struct thread *thread, u64 address, u32 expected)
{
    u32 space = thread->space, value;
    if (!load_user(address, &value, shared->has_smap))
        return ANSWER_NONE;
    if (value != expected)
        return given(cpu, thread, ERROR_AGAIN);
    off_processor(thread);
    thread->futex = address;
    thread->turn = ADD(shared->futex_turns, 1);
    STORE(cpu->running, 0);
    STORE(thread->state, THREAD_WAITING);
    ready_set(shared->waiting[space], index_of(thread));
    /* From here on it may be anybody's. */
    if (!is_local(space) || !load_user(address, &value, shared->has_smap))
        return reconsider(cpu, thread, space, 0);
    if (value != expected)
        return reconsider(cpu, thread, space, ERROR_AGAIN);
    ADD(cpu->local_calls, 1);
    return ANSWER_LATER;
}

enum answer futex(struct processor *cpu, struct thread *thread)
{
    const struct registers *registers = &thread->registers;
    u64 address = registers->di;
    u32 operation = (u32)registers->si & ~(u32)FUTEX_REALTIME;
    if (!is_local(thread->space) || address & 3 || address >= ADDRESS_MOST)
        return ANSWER_NONE;
    switch (operation) {
    case FUTEX_WAIT_BITSET | FUTEX_PRIVATE:
        if ((u32)registers->r9 != BITS_ANY)
            return ANSWER_NONE;
        /* fall through */
    case FUTEX_WAIT | FUTEX_PRIVATE:
        if (registers->r10)
            return ANSWER_NONE;
        return wait_at(cpu, thread, address, (u32)registers->dx);
    case FUTEX_WAKE_BITSET | FUTEX_PRIVATE:
        if ((u32)registers->r9 != BITS_ANY)
            return ANSWER_NONE;
        /* fall through */
    case FUTEX_WAKE | FUTEX_PRIVATE:
        if ((int)registers->dx <= 0)
            return ANSWER_NONE;
        /* The program's last store comes before the looks at who waits, and where. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (LOAD(shared->futex_calls[thread->space]) || !is_local(thread->space))
            return ANSWER_NONE;
        return given(cpu, thread, wake_at(cpu, thread->space, address, (u32)registers->dx));
    default:
        return ANSWER_NONE;
    }
}
