/* Forks by code that has no patch of ours: the program's libc is asked to report them. */

typedef int register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                            void *dso);

/* This thread's block, if it has one: libc also calls in threads that came to no entry guard. */
static struct thread_block *own_block(void)
{
    struct thread_block *b = block_at_gs();
    return b && b->owner == 0 - (thread_pointer() + KEY) ? b : 0;
}

static void fork_begins(void)
{
    if (own_block())
        fettle_before_fork();
}

static void fork_ends(void)
{
    if (own_block())
        fettle_after_fork();
}

#ifdef FETTLE_OBJECT
extern register_atfork __register_atfork __attribute__((weak));
extern u8 __dso_handle __attribute__((weak, visibility("hidden")));

static void ask_libc(void)
{
    if (__register_atfork)
        __register_atfork(fork_begins, fork_ends, fork_ends, &__dso_handle);
}
#else

#define DT_NULL 0
#define DT_STRTAB 5
#define DT_SYMTAB 6
#define DT_DEBUG 21
#define DT_GNU_HASH 0x6ffffef5
#define PT_DYNAMIC 2

/* As in the ELF specification, and <link.h>. */
struct dynamic { u64 tag, value; };
struct phdr { u32 type, flags; u64 offset, vaddr, paddr, filesz, memsz, align; };
struct symbol { u32 name; u8 info, other; unsigned short section; u64 value, size; };
struct link_map { u64 bias; const char *name; const struct dynamic *dynamic; struct link_map *next; };
struct debug { int version; struct link_map *maps; };

/* Some loaders leave addresses in dynamic sections as they are in the file. */
static u64 entry_of(const struct link_map *m, u64 tag)
{
    for (const struct dynamic *d = m->dynamic; d->tag != DT_NULL; d++)
        if (d->tag == tag)
            return d->value < m->bias ? d->value + m->bias : d->value;
    return 0;
}

static u64 defined_in(const struct link_map *m, const char *name)
{
    const u32 *table = (const u32 *)entry_of(m, DT_GNU_HASH);
    const struct symbol *symbols = (const struct symbol *)entry_of(m, DT_SYMTAB);
    const char *names = (const char *)entry_of(m, DT_STRTAB);
    if (!table || !symbols || !names || !table[0])
        return 0;
    u32 hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (u8)*c;
    const u32 *buckets = table + 4 + table[2] * 2, *chains = buckets + table[0];
    u32 i = buckets[hash % table[0]];
    for (; i >= table[1]; i++) {
        u32 found = chains[i - table[1]];
        const char *a = name, *b = names + symbols[i].name;
        while (*a && *a == *b)
            a++, b++;
        if ((found | 1) == (hash | 1) && *a == *b && symbols[i].section)
            return m->bias + symbols[i].value;
        if (found & 1)
            break;
    }
    return 0;
}

/* When a program's first instruction runs, its libraries are there. */
static void ask_libc(const struct phdr *p, u64 count)
{
    const struct dynamic *d = 0;
    for (u64 i = 0; i < count; i++)
        if (p[i].type == PT_DYNAMIC)
            d = (const struct dynamic *)(p[i].vaddr + fettle_data.bias);
    while (d && d->tag != DT_NULL && d->tag != DT_DEBUG)
        d++;
    const struct debug *debug = d && d->tag == DT_DEBUG ? (const struct debug *)d->value : 0;
    for (const struct link_map *m = debug ? debug->maps : 0; m; m = m->next) {
        u64 at = defined_in(m, "__register_atfork");
        /* musl's name. */
        if (!at)
            at = defined_in(m, "pthread_atfork");
        if (at) {
            ((register_atfork *)at)(fork_begins, fork_ends, fork_ends, 0);
            return;
        }
    }
}
#endif
