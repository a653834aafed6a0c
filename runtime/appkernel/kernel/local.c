/* System calls that are answered here, without Linux: those whose answer does not change while a
 * thread is out, yielding, which is about this kernel's own processors, and futexes between threads that
 * are out (futex.c). */
#include "kernel.h"

#define CALL_GETPID 39
#define CALL_GETTID 186
#define CALL_FUTEX 202

enum answer answer_locally(struct processor *cpu, struct thread *thread)
{
    struct registers *registers = &thread->registers;
    if (!thread->answers_locally)
        return ANSWER_NONE;
    switch (registers->ax) {
    case CALL_GETPID:
        registers->ax = thread->process;
        break;
    case CALL_GETTID:
        registers->ax = thread->task;
        break;
    case CALL_SCHED_YIELD:
        registers->ax = 0;
        break;
    case CALL_FUTEX:
        return futex(cpu, thread);
    default:
        return ANSWER_NONE;
    }
    thread->local_calls++;
    cpu->local_calls++;
    return ANSWER_GIVEN;
}
