// The control file /proc/fettle, and the module's beginning and end.
//
// A file of proc needs no more of the kernel than one table of functions, no device and no name in /dev,
// and does not keep the module from being removed: the kernel then closes it first. Closing it for the last
// time undoes everything unless the client asked to keep it, so a client may die at any instruction.
#include "kmod.h"

struct status status = {.version = STATUS_VERSION};
static u64 lock[32] __attribute__((aligned(64)));  // struct mutex
static u64 lock_key[8];
static void *file;
static u32 openers;

static int leave(void) {
    if (status.state == INSTALLED) status.state = LEAVING;
    if (status.state == OUT) return 0;
    take_jumps_back(&status);
    int failed = lead_out(&status);
    if (!failed && status.foreign) failed = -EAGAIN;
    if (!failed) {
        status.state = OUT;
        stop_clock();
    }
    return failed;
}

static int carry_out(struct command command) {
    switch (command.verb) {
    case INSTALL:
        if (status.barred) return -EBUSY;
        status.taken = 0;
        int failed = start_clock();
        if (failed) return failed;
        failed = write_jumps(&status);
        if (!failed) status.state = INSTALLED;
        if (status.state == OUT) stop_clock();
        return failed;
    case REMOVE:
        if (status.state == INSTALLED) {
            status.state = LEAVING;
            take_jumps_back(&status);
        }
        return 0;
    case UNDO:
        return leave();
    case KEEP:
        status.keep = command.argument != 0;
        return 0;
    }
    return -EINVAL;
}

int control_open(void *inode, void *opened) {
    (void)inode, (void)opened;
    mutex_lock(lock);
    openers++;
    mutex_unlock(lock);
    return 0;
}

int control_release(void *inode, void *opened) {
    (void)inode, (void)opened;
    mutex_lock(lock);
    // Where threads cannot leave now, copies stay, which nothing leads to any more.
    if (!--openers && !status.keep) leave();
    mutex_unlock(lock);
    return 0;
}

s64 control_write(void *opened, const void *from, u64 count, s64 *position) {
    struct command command;
    s64 begin = 0;
    (void)opened, (void)position;
    if (count != sizeof command) return -EINVAL;
    s64 got = simple_write_to_buffer(&command, sizeof command, &begin, from, count);
    if (got != sizeof command) return got < 0 ? got : -EINVAL;
    mutex_lock(lock);
    int failed = carry_out(command);
    mutex_unlock(lock);
    return failed ? failed : got;
}

s64 control_read(void *opened, void *to, u64 count, s64 *position) {
    (void)opened;
    s64 at = *position, got;
    s64 row = (s64)(facts.cpu_counters * sizeof(u64)), rows = row * (s64)status.cpus;
    if (at < 0) return -EINVAL;
    if (at < STATUS_BYTES) {
        static u8 page[STATUS_BYTES];
        mutex_lock(lock);
        status.ticks = __builtin_ia32_rdtsc();
        read_clock(&status);
        status.now_ns = ktime_get_mono_fast_ns();
        for (u64 i = 0; i < sizeof status; i++) page[i] = ((u8 *)&status)[i];
        got = simple_read_from_buffer(to, count, position, page, sizeof page);
        mutex_unlock(lock);
        return got;
    }
    at -= STATUS_BYTES;
    if (at < rows) {
        s64 processor = at / row, inside = at % row;
        // A processor that is not possible has no memory of its own.
        if (!(((u64 *)__cpu_possible_mask)[processor / 64] >> processor % 64 & 1)) processor = 0;
        u8 *counters = (u8 *)(__per_cpu_offset[processor] + (u64)cpu_counters);
        got = simple_read_from_buffer(to, count, &inside, counters, (u64)row);
    } else {
        at -= rows;
        got = simple_read_from_buffer(to, count, &at, shared_counters,
                                      facts.shared_counters * sizeof(u64));
    }
    if (got > 0) *position += got;
    return got;
}

// A livepatch comes: it must find the kernel as it was built, and its own changes must take effect.
static int module_changes(struct notifier *self, u64 action, void *module) {
    enum { COMING = 1, ATTEMPTS = 50 };
    (void)self;
    if (action != COMING || !FIELD(u8, module, facts.module_klp)) return 0;
    mutex_lock(lock);
    status.barred = 1;
    for (int i = 0; i < ATTEMPTS && leave(); i++) msleep(20);
    if (status.state != OUT) _printk("fettle: threads are still in rewritten text while a livepatch comes\n");
    mutex_unlock(lock);
    return 0;
}

static struct notifier modules = {.call = module_changes};
// Before all others, which would take the breakpoint for a mistake.
static struct notifier breakpoints = {.call = at_breakpoint, .priority = 0x7ffffff0};

static void let_modules_go(u64 count) {
    while (count) module_put((void *)held_modules[--count].module);
}

// Takes a reference to each module that originals lie in, if it is still the one that the plan was made for.
static int hold_modules(void) {
    for (u64 i = 0; i < facts.held_modules; i++) {
        const struct held *held = &held_modules[i];
        __rcu_read_lock();
        int is_held = find_module(held->name) == (void *)held->module && try_module_get((void *)held->module);
        __rcu_read_unlock();
        if (is_held) continue;
        let_modules_go(i);
        return -ENOENT;
    }
    return 0;
}

int init_module(void) {
    __mutex_init(lock, "fettle", lock_key);
    status.patches = facts.patches;
    status.text_begin = (u64)text_begin;
    status.text_end = (u64)text_end;
    status.cpus = nr_cpu_ids;
    status.cpu_counters = facts.cpu_counters;
    status.shared_counters = facts.shared_counters;
    int failed = hold_modules();
    if (failed) return failed;
    failed = register_die_notifier(&breakpoints);
    if (failed) goto no_breakpoints;
    failed = register_module_notifier(&modules);
    if (failed) goto no_modules;
    file = proc_create("fettle", 0600, 0, control_operations);
    if (file) return 0;
    failed = -EBUSY;
    unregister_module_notifier(&modules);
no_modules:
    unregister_die_notifier(&breakpoints);
no_breakpoints:
    let_modules_go(facts.held_modules);
    return failed;
}

void cleanup_module(void) {
    proc_remove(file);
    unregister_module_notifier(&modules);
    mutex_lock(lock);
    // The text goes away after this: there is no giving up.
    for (u32 i = 0; leave(); i++) {
        if (i == 50) _printk("fettle: waiting for return hooks or probes of others to go\n");
        msleep(20);
    }
    mutex_unlock(lock);
    unregister_die_notifier(&breakpoints);
    let_modules_go(facts.held_modules);
}
