/* Convoys: a lock goes from thread to thread, and at each release the next one waits already.
 *
 * A stretch begins with a release for which a thread waits, and ends with one for which none does. Those in which
 * the lock went on so often to a thread that had waited are added up; the analysis says which are convoys.
 * Who changes one has the guard of the lock's entry.
 */
#define HANDED_LEAST 32u

static struct convoy *convoy_of(const char *front, u32 entry)
{
    return (struct convoy *)(front + HEAD_CONVOYS) + (entry - 1);
}

/* A thread lets the lock go, and `queue` others wait for it. */
static void convoy_goes_on(struct convoy *c, u32 queue, u64 time, u64 passing)
{
    struct stretch *s = &c->now;
    if (!s->releases) {
        c->since = time;
        c->passing_before = passing;
    }
    s->releases++;
    s->ticks = time - c->since;
    s->passing = passing - c->passing_before;
    s->queues[queue < QUEUES ? queue - 1 : QUEUES - 1]++;
}

/* No thread waits any more. */
static void convoy_ends(struct convoy *c)
{
    struct stretch *s = &c->now;
    int counts = s->handed >= HANDED_LEAST;
    if (counts) {
        c->stretches++;
        c->all.releases += s->releases;
        c->all.handed += s->handed;
        c->all.ticks += s->ticks;
        c->all.passing += s->passing;
    }
    for (u32 i = 0; i < QUEUES; i++) {
        if (counts)
            c->all.queues[i] += s->queues[i];
        s->queues[i] = 0;
    }
    s->releases = s->handed = s->ticks = s->passing = 0;
}
