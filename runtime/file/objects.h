/* How the agent differs in programs that are linked from instrumented object files.
 *
 * The link decides which functions there are and where. Every section of code has a chunk of
 * records, one for each of its functions, and a note that leads to the chunk; notes are what a
 * program finds by its program headers, whatever linker made it. The records are written by
 * `fettle-instrument` (object/records.rs); distances in them are from the place they stand at.
 */

struct ehdr {
    u8 ident[16];
    unsigned short type, machine;
    u32 version;
    u64 entry, phoff, shoff;
    u32 flags;
    unsigned short ehsize, phentsize, phnum;
};

struct phdr {
    u32 type, flags;
    u64 offset, vaddr, paddr, filesz, memsz, align;
};

/* The linker's, where the program's headers are in memory. */
extern const struct ehdr fettle_ehdr __asm__("__ehdr_start") __attribute__((weak, visibility("hidden")));

enum { PT_LOAD = 1, PT_INTERP = 3, PT_NOTE = 4 };

struct note_head { u32 name_len, len, type; char name[8]; };
struct chunk_at { int distance; u32 len; };
/* Set by fettle-instrument: the type of our notes. */
extern const u32 fettle_note_type __attribute__((visibility("hidden")));

enum { PROBED = 1 };
enum { MODE_COUNT, MODE_TIME, MODE_EVENTS, MODE_SAMPLE, MODE_BLOCKS, MODE_CPU };

struct record {
    u32 len;
    u8 kind, mode;
    unsigned short pad0;
    int entry, code;
    u32 size, line, boards, fixups, blocks, name_len, file_len, code_size;
};
struct board { int at, to; };
struct fixup { u32 at, what; };

enum { FIX_ACCUMULATOR, FIX_COUNTER, FIX_ID_HIGH, FIX_ID_LOW, FIX_NUMBER, FIX_CALL };

#define FUNCTIONS (1u << 22)
#define COUNTERS (1u << 24)
#define ACCUMULATORS (RING + RING_BYTES + 0x1000)
#define COUNTERS_AT (ACCUMULATORS + FUNCTIONS * 32ul)

static u32 first_function, functions, first_counter, counters, chunks;
static u64 chunk_bytes;

/* The state of a walk over all records. */
struct walk {
    u32 header;
    const u8 *note, *notes_end;
    const u8 *chunk, *at, *end;
};

/* The next chunk; 0 behind the last. */
static int next_chunk(struct walk *w)
{
    const struct ehdr *e = &fettle_ehdr;
    const struct phdr *p = (const struct phdr *)((const u8 *)e + e->phoff);
    for (;;) {
        while (w->note + sizeof(struct note_head) <= w->notes_end) {
            const struct note_head *n = (const struct note_head *)w->note;
            u64 len = 12 + ((n->name_len + 3ul) & ~3ul) + ((n->len + 3ul) & ~3ul);
            w->note += len;
            if (n->name_len != 7 || n->type != fettle_note_type || n->len != 8
                || n->name[0] != 'F' || n->name[5] != 'e')
                continue;
            const struct chunk_at *c = (const struct chunk_at *)(n + 1);
            w->chunk = w->at = (const u8 *)c + c->distance;
            w->end = w->at + c->len;
            return 1;
        }
        while (w->header < e->phnum && (p[w->header].type != PT_NOTE || p[w->header].align == 8))
            w->header++;
        if (w->header == e->phnum)
            return 0;
        w->note = (const u8 *)(p[w->header].vaddr + fettle_data.bias);
        w->notes_end = w->note + p[w->header].memsz;
        w->header++;
    }
}

/* The next function with probes; 0 behind the last. */
static const struct record *next_record(struct walk *w)
{
    for (;;) {
        while (w->at < w->end) {
            const struct record *r = (const struct record *)w->at;
            w->at += r->len;
            if (r->kind == PROBED)
                return r;
        }
        if (!next_chunk(w))
            return 0;
    }
}

static const struct board *boards_of(const struct record *r)
{
    return (const struct board *)(r + 1);
}

static const struct fixup *fixups_of(const struct record *r)
{
    return (const struct fixup *)(boards_of(r) + r->boards);
}

static u8 *code_of(const struct record *r)
{
    return (u8 *)&r->code + r->code;
}

/* Finds the program's address, the number of its functions, and their numbers: the begin of their
 * range is derived from the program's identity, since there is no one that assigns ranges to a
 * process's files. */
static int locate(void)
{
    struct data *d = &fettle_data;
    const struct ehdr *e = &fettle_ehdr;
    if (!e || e->phentsize != sizeof(struct phdr))
        return 0;
    const struct phdr *p = (const struct phdr *)((const u8 *)e + e->phoff);
    int program = e->type == 2, found = 0;
    for (u32 i = 0; i < e->phnum; i++) {
        if (p[i].type == PT_INTERP)
            program = 1;
        if (p[i].type == PT_LOAD && !found) {
            d->bias = (u64)e - (p[i].vaddr - p[i].offset);
            found = 1;
        }
    }
    d->has_original = (u64)program;
    return found;
}

static int is_whole(void)
{
    struct data *d = &fettle_data;
    u64 id = 0xcbf29ce484222325ul, n = 0, blocks = 0;
    u32 modes = 0;
    struct walk w = { 0 };
    while (next_chunk(&w)) {
        chunks++;
        chunk_bytes += (u64)(w.end - w.at);
        for (; w.at < w.end; w.at += ((const struct record *)w.at)->len) {
            const struct record *r = (const struct record *)w.at;
            const u64 *word = (const u64 *)w.at;
            for (u32 i = 0; i < r->len / 8; i++)
                id = (id ^ word[i]) * 0x100000001b3ul;
            if (r->kind != PROBED)
                continue;
            n++;
            blocks += r->blocks;
            modes |= 1u << r->mode;
            if (r->mode == MODE_EVENTS)
                d->records = 1;
            if (r->mode == MODE_SAMPLE)
                d->samples = 1;
            if (r->mode == MODE_CPU)
                d->clock = 1;
            if (r->mode != MODE_COUNT && r->mode != MODE_BLOCKS)
                d->timed = 1;
        }
    }
    if (n == 0 || n >= FUNCTIONS || blocks >= COUNTERS) {
        say(n ? "too many functions; wanted in" : "no function to record; wanted in");
        return 0;
    }
    /* What these put on the call-stack mirror the others do not understand. */
    u32 timed = modes & (1u << MODE_TIME | 1u << MODE_EVENTS | 1u << MODE_SAMPLE | 1u << MODE_CPU);
    if (d->samples + d->clock && timed & (timed - 1)) {
        say("object files measure different things; wanted in");
        return 0;
    }
    functions = (u32)n;
    counters = (u32)blocks;
    d->map_id = id ? id : 1;
    first_function = (u32)(d->map_id % (FUNCTIONS - n));
    first_counter = (u32)(d->map_id % (COUNTERS - blocks));
    d->slot_size = COUNTERS_AT + COUNTERS * 8ul;
    d->accumulators = ACCUMULATORS;
    d->reserve_at = blocks ? COUNTERS_AT + first_counter * 8ul
                           : ACCUMULATORS + first_function * sizeof(struct accumulator);
    d->reserve_len = blocks ? blocks * 8 : n * sizeof(struct accumulator);
    return 1;
}

static int open_data(void)
{
    return 1;
}

/* The chunks, each with its address and length in front, next to the slots. */
static void copy_map(void)
{
    struct data *d = &fettle_data;
    char path[PATH + 128];
    put(put_hex(put(put(path, d->dir), "/slots/"), d->map_id), ".objects");
    u64 head[] = {
        0x534a424f54544546ul /* FETTOBJS */, 1, d->map_id, first_function, first_counter, chunks,
    };
    u64 len = sizeof head + chunks * 16ul + chunk_bytes;
    long room = call6(SYS_mmap, 0, len, 3, 0x22, ~0ul, 0);
    if (room < 0 && room > -4096)
        return;
    u8 *to = (u8 *)room;
    memcpy(to, head, sizeof head);
    to += sizeof head;
    struct walk w = { 0 };
    while (next_chunk(&w)) {
        u64 where[] = { (u64)w.chunk - d->bias, (u64)(w.end - w.chunk) };
        memcpy(to, where, sizeof where);
        memcpy(to + sizeof where, w.chunk, where[1]);
        to += sizeof where + where[1];
    }
    long fd = call(SYS_open, path, 1 | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        for (u64 done = 0; done < len;) {
            long n = call(SYS_write, fd, room + (long)done, len - done);
            if (n <= 0)
                break;
            done += (u64)n;
        }
        call(SYS_close, fd, 0, 0);
    }
    call(SYS_munmap, room, len, 0);
}

/* This code is in the segment that it changes, so that stays executable. */
static int protect(int writable)
{
    const struct ehdr *e = &fettle_ehdr;
    const struct phdr *p = (const struct phdr *)((const u8 *)e + e->phoff);
    for (u32 i = 0; i < e->phnum; i++) {
        if (p[i].type != PT_LOAD || !(p[i].flags & 1))
            continue;
        u64 start = (p[i].vaddr + fettle_data.bias) & ~0xffful;
        u64 len = ((p[i].vaddr + p[i].memsz + fettle_data.bias + 0xfff) & ~0xffful) - start;
        u64 prot = (p[i].flags >> 2 & 1) | (p[i].flags & 2) | 4;
        if (call(SYS_mprotect, start, len, writable ? 7 : prot) != 0)
            return 0;
    }
    return 1;
}

static void set4(u8 *at, u32 value)
{
    *(volatile u32 *)at = value;
}

static u8 *follow(const u8 *jump)
{
    return (u8 *)jump + 5 + *(const int *)(jump + 1);
}

static int is_code(const u8 *at)
{
    const struct ehdr *e = &fettle_ehdr;
    const struct phdr *p = (const struct phdr *)((const u8 *)e + e->phoff);
    for (u32 i = 0; i < e->phnum; i++)
        if (p[i].type == PT_LOAD && p[i].flags & 1
            && (u64)at - fettle_data.bias - p[i].vaddr + 16 < p[i].memsz)
            return 1;
    return 0;
}

extern void entry_check_library(void) __attribute__((visibility("hidden")));

/* Where a call of `to` ends up behind an entry guard of ours; 0 if there is none. */
static u8 *behind_guard(const u8 *to)
{
    if (!is_code(to))
        return 0;
    if (*(const u32 *)to == 0xfa1e0ff3u)
        to += 4;
    if (*to != 0xe9 || !is_code(to = follow(to)) || to[0] != 0xe8 || to[5] != 0xe9
        || follow(to) != (u8 *)entry_check_library)
        return 0;
    return follow(to + 5);
}

/* Numbers the functions and patches the original text so that it leads to the rewritten text. */
static int apply(void)
{
    if (!protect(1)) {
        protect(0);
        return 0;
    }
    u32 number = first_function, counter = first_counter;
    struct walk w = { 0 };
    const struct record *r;
    for (; (r = next_record(&w)); number++, counter += r->blocks) {
        u8 *code = code_of(r);
        /* Identifiers whose lower half would be 0 are left out (crates/base/abi/src/record.rs). */
        u32 id = number / 4095 * 4096 + number % 4095 + 1;
        const struct fixup *f = fixups_of(r);
        for (u32 i = 0; i < r->fixups; i++) {
            u32 field = f[i].what & 0xffffff;
            u8 *at = code + f[i].at;
            switch (f[i].what >> 24) {
            case FIX_ACCUMULATOR:
                set4(at, (u32)(ACCUMULATORS + number * sizeof(struct accumulator) + field));
                break;
            case FIX_COUNTER: set4(at, (u32)COUNTERS_AT + (counter + field) * 8); break;
            case FIX_ID_HIGH: set4(at, id >> 12); break;
            case FIX_ID_LOW: set4(at, id & 4095); break;
            case FIX_NUMBER: set4(at, number); break;
            }
        }
        const struct board *b = boards_of(r);
        for (u32 i = 0; i < r->boards; i++) {
            u8 *at = (u8 *)&b[i].at + b[i].at;
            int distance = (int)(code + b[i].to - (at + 5));
            at[0] = 0xe9;
            set4(at + 1, (u32)distance);
        }
    }
    /* Calls between files pass an entry guard at every call, unless they are redirected behind it. */
    struct walk again = { 0 };
    while ((r = next_record(&again))) {
        const struct fixup *f = fixups_of(r);
        for (u32 i = 0; i < r->fixups; i++) {
            if (f[i].what >> 24 != FIX_CALL)
                continue;
            u8 *at = code_of(r) + f[i].at;
            u8 *to = behind_guard(follow(at - 1));
            if (to)
                set4(at, (u32)(to - (at + 4)));
        }
    }
    protect(0);
    return 1;
}
