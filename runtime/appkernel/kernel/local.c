/* System calls that are answered here, without Linux: those whose answer does not change while a
 * thread is out, and yielding, which is about this kernel's own processors. */
#include "kernel.h"

#define CALL_SCHED_YIELD 24
#define CALL_GETPID 39
#define CALL_GETTID 186

int answer_locally(struct processor *cpu, struct thread *thread)
{
    struct registers *registers = &thread->registers;
    if (!thread->answers_locally)
        return 0;
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
    default:
        return 0;
    }
    thread->local_calls++;
    cpu->local_calls++;
    return 1;
}
