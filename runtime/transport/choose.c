/* Which way messages of a size class take: the one that has been fastest, by what the receiver has measured.
 *
 * Time is divided into stretches. At first all ways are tried in turn, some stretches each. From then on nearly all
 * stretches use the best one, and now and then another one is tried, the more seldom the worse it was. What trials cost
 * is added up, and held below a fiftieth of all time. Another way is chosen only if the 95 % interval of the difference
 * excludes that both are equal, and then some: what is equally fast does not switch to and fro. When the way in use
 * becomes much slower or faster than it was, as when the processes come to other processors, all begins again. */
#include "internal.h"

#include <math.h>
#include <time.h>

enum {
    STRETCH_NS = 1000000,
    ROUNDS = 3,           /* of all ways at the beginning */
    MESSAGES_MIN = 4,     /* of a stretch */
    MESSAGES_MAX = 1 << 20,
    MEASURED_EVERY = 4,   /* stretches of the way in use that are measured */
    TRIAL_EVERY = 8,      /* stretches between trials of ways that are about as good */
    WAIT_MAX = 4096,
    RENEW_AFTER = 64,     /* stretches between two beginnings */
};

static const double REGRET = 0.02, HYSTERESIS = 0.02, CHANGED = 3;

unsigned class_of(size_t length) {
    unsigned class = 0;
    for (size_t most = 64; length > most && class + 1 < FETTLE_TRANSPORT_CLASSES; most *= 4) class++;
    return class;
}

/* By the clock that the kernel keeps; measured once. */
double ns_per_tick(void) {
    static _Atomic double known;
    double value = atomic_load_explicit(&known, memory_order_relaxed);
    if (value == 0) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        uint64_t from = now_ticks(), to;
        do {
            clock_gettime(CLOCK_MONOTONIC, &b);
            to = now_ticks();
        } while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < 200000);
        value = (double)((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec) / (double)(to - from);
        atomic_store_explicit(&known, value, memory_order_relaxed);
    }
    return value;
}

static unsigned kept(const struct measured *m) { return m->count < SAMPLES ? m->count : SAMPLES; }

/* The longest of three stretches and more is left out: the machine may have done other work. */
static unsigned left_out(const struct measured *m) {
    unsigned most = 0;
    for (unsigned i = 1; i < kept(m); i++)
        if (m->samples[i] > m->samples[most]) most = i;
    return kept(m) < 3 ? SAMPLES : most;
}

double mean_of(const struct measured *m) {
    unsigned out = left_out(m), n = kept(m) - (out < SAMPLES);
    double sum = 0;
    for (unsigned i = 0; i < kept(m); i++)
        if (i != out) sum += m->samples[i];
    return n ? sum / n : 0;
}

/* The square of the mean's standard error. */
static double error_of(const struct measured *m) {
    unsigned out = left_out(m), n = kept(m) - (out < SAMPLES);
    double mean = mean_of(m), sum = 0;
    if (n < 2) return INFINITY;
    for (unsigned i = 0; i < kept(m); i++)
        if (i != out) sum += (m->samples[i] - mean) * (m->samples[i] - mean);
    return sum / (n - 1) / n;
}

/* Whether the 95 % interval of the difference, and the hysteresis, say that `a` is faster. */
static int is_faster(const struct measured *a, const struct measured *b) {
    /* Student's factor for as few as three samples of each. */
    double factor = kept(a) < 4 || kept(b) < 4 ? 2.8 : 2.2;
    if (kept(a) < 3 || kept(b) < 3) return 0;
    double gain = mean_of(b) - mean_of(a) - HYSTERESIS * mean_of(b);
    return gain > 0 && gain * gain > factor * factor * (error_of(a) + error_of(b));
}

static int best_of(const struct chooser *c, unsigned open) {
    int best = c->way;
    for (int way = 0; way < FETTLE_TRANSPORT_WAYS; way++)
        if (open >> way & 1 && c->ways[way].count && (!c->ways[best].count || mean_of(&c->ways[way]) < mean_of(&c->ways[best])))
            best = way;
    return best;
}

static int next_open(unsigned open, int way) {
    do way = (way + 1) % FETTLE_TRANSPORT_WAYS; while (!(open >> way & 1));
    return way;
}

static void begin_again(struct chooser *c, unsigned open) {
    for (int way = 0; way < FETTLE_TRANSPORT_WAYS; way++) {
        c->ways[way].count = 0;
        c->ways[way].wait = TRIAL_EVERY;
    }
    c->beginning = ROUNDS * __builtin_popcount(open);
    c->renewed = c->stretch;
}

/* As many messages as take a stretch's time, by what is known of the way. */
static void begin_stretch(struct chooser *c, int trial, int is_measured) {
    double mean = mean_of(&c->ways[trial >= 0 ? trial : c->way]);
    double length = STRETCH_NS / ns_per_tick(), messages = mean > 0 ? length / mean : MESSAGES_MIN;
    c->trial = trial;
    c->is_measured = is_measured;
    c->left = messages < MESSAGES_MIN ? MESSAGES_MIN : messages > MESSAGES_MAX ? MESSAGES_MAX : (uint32_t)messages;
    c->sent = 0;
    c->begun = now_ticks();
    c->stretch++;
}

void chooser_begin(struct chooser *c, unsigned open) {
    c->is_counted = 0;
    c->way = next_open(open, FETTLE_TRANSPORT_SOCKET);
    begin_again(c, open);
    begin_stretch(c, c->way, 1);
}

/* Takes over what the receiver has measured of a way since that was done last. */
static int look(struct measured *m, uint64_t ticks, uint64_t count) {
    uint64_t more = count - m->seen_count;
    if (more == 0) return 0;
    m->samples[m->count++ % SAMPLES] = (double)(ticks - m->seen_ticks) / (double)more;
    m->seen_ticks = ticks;
    m->seen_count = count;
    return 1;
}

/* A way that is to be tried by now, if trials have not cost too much already. */
static int due(const struct chooser *c, unsigned open) {
    int found = -1;
    if (c->regret > REGRET * c->total) return -1;
    for (int way = 0; way < FETTLE_TRANSPORT_WAYS; way++)
        if (way != c->way && open >> way & 1 && c->ways[way].due <= c->stretch &&
            (found < 0 || c->ways[way].due < c->ways[found].due))
            found = way;
    return found;
}

static void after_trial(struct chooser *c, int way) {
    struct measured *tried = &c->ways[way], *used = &c->ways[c->way];
    double mean = mean_of(tried), best = mean_of(used);
    if (is_faster(tried, used)) {
        c->way = way;
        c->switches++;
        used->wait = TRIAL_EVERY;
        used->due = c->stretch + TRIAL_EVERY;
        return;
    }
    /* What may be better is tried again soon; what is worse, more and more seldom. */
    if (mean < best) tried->wait = 2;
    else if (mean < 1.1 * best) tried->wait = tried->wait < TRIAL_EVERY ? TRIAL_EVERY : tried->wait * 2;
    else tried->wait = tried->wait < 32 ? 64 : tried->wait * 4;
    if (tried->wait > WAIT_MAX) tried->wait = WAIT_MAX;
    tried->due = c->stretch + tried->wait;
}

static void first_round(struct chooser *c, unsigned open) {
    int way = chooser_way(c);
    /* What is far worse than another one has been seen often enough. */
    do {
        way = next_open(open, way);
        c->beginning--;
    } while (c->beginning > 0 && c->ways[way].count && mean_of(&c->ways[way]) > 2 * mean_of(&c->ways[best_of(c, open)]));
    if (c->beginning > 0) {
        begin_stretch(c, way, 1);
        return;
    }
    int best = best_of(c, open);
    c->switches += best != c->way;
    c->way = best;
    c->regret = 0;
    c->total = 0;
    for (way = 0; way < FETTLE_TRANSPORT_WAYS; way++) {
        int is_far = mean_of(&c->ways[way]) > 1.5 * mean_of(&c->ways[best]);
        c->ways[way].wait = is_far ? 256 : TRIAL_EVERY;
        c->ways[way].due = c->stretch + c->ways[way].wait;
    }
    begin_stretch(c, -1, 1);
}

void chooser_turn(struct chooser *c, unsigned open, const _Atomic uint64_t *ticks, const _Atomic uint64_t *counted) {
    int way = chooser_way(c), was_trial = c->trial >= 0;
    struct measured *m = &c->ways[way];
    double spent = (double)(now_ticks() - c->begun), before = mean_of(m);
    unsigned had = kept(m);
    m->messages += c->sent;
    /* Before much is known of a way, its stretches may be far too short. */
    if (c->is_measured && spent < STRETCH_NS / ns_per_tick() / 4 && c->left == 0 && c->sent < MESSAGES_MAX) {
        m->messages -= c->sent;
        c->left = c->sent;
        return;
    }
    int looked = 0;
    for (int i = 0; i < FETTLE_TRANSPORT_WAYS; i++) {
        int is_new = look(&c->ways[i], atomic_load_explicit(&ticks[i], memory_order_relaxed),
                          atomic_load_explicit(&counted[i], memory_order_relaxed));
        if (i == way) looked = is_new;
    }
    if (c->beginning > 0) {
        first_round(c, open);
        return;
    }
    c->total += spent;
    if (was_trial) {
        double more = looked ? m->samples[(m->count - 1) % SAMPLES] - mean_of(&c->ways[c->way]) : 0;
        if (more > 0) c->regret += more * c->sent;
        after_trial(c, way);
        begin_stretch(c, -1, 1);
        return;
    }
    if (looked && had >= 3) {
        double last = m->samples[(m->count - 1) % SAMPLES];
        /* Twice in a row: one stretch may have been disturbed. */
        double other = m->samples[(m->count - 2) % SAMPLES];
        int is_slower = last > CHANGED * before && other > CHANGED * before / 1.2;
        int is_faster_now = last * CHANGED < before && other * CHANGED / 1.2 < before;
        if ((is_slower || is_faster_now) && c->stretch - c->renewed > RENEW_AFTER) {
            begin_again(c, open);
            begin_stretch(c, c->way, 1);
            return;
        }
    }
    int trial = due(c, open);
    if (trial >= 0) begin_stretch(c, trial, 1);
    else begin_stretch(c, -1, c->stretch % MEASURED_EVERY == 0);
}
