/* The log: in memory that Linux reads, also when this kernel hangs. */
#include "kernel.h"

void note(struct processor *cpu, enum note_kind what, u64 a, u64 b)
{
    u64 place = ADD(shared->notes_written, 1) - 1;
    struct note *note = &shared->notes[place % MAX_NOTES];
    STORE(note->what, NOTE_NONE);
    note->tick = now();
    note->cpu = cpu->index;
    note->a = a;
    note->b = b;
    STORE(note->what, what);
}
