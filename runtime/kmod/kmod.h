// The core of the module that brings rewritten text into a running kernel: what its parts share.
//
// It is compiled without the kernel's headers, when Fettle itself is built, and has to fit kernels that
// did not exist then. So it knows no structure of the kernel: the module writer (crates/kernel/kernel-live)
// takes offsets of fields from the kernel's BTF, addresses of functions from its symbols, and puts both
// into the module. Five layouts are ABI between the two and stand in this file: `facts`, `patch`,
// `origin`, `held`, `open_span`. Two more are between the core and its client: `status` and `command`.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long u64;
typedef long s64;

#define ENOENT 2
#define EAGAIN 11
#define ENOMEM 12
#define EBUSY 16
#define EINVAL 22

#define JUMP 0xe9
#define INT3 0xcc
#define JUMP_BYTES 5

#define TRACEPOINTS 15

// Where fields lie in the kernel's structures, and how much the plan brings. `u64` each.
struct facts {
    u64 task_tasks, task_thread_node, task_signal, task_stack, task_stack_refcount, task_on_cpu, task_sp;
    u64 task_start_time, task_nvcsw, task_nivcsw;
    u64 signal_thread_head;
    u64 unwind_error;
    u64 module_klp;
    u64 die_regs, regs_ip;
    u64 patches, origins;
    u64 cpu_counters, shared_counters;
    u64 held_modules;
    u64 open;  // spans; where there are none, time is not taken
    // Where tracepoints lie, 0 where the kernel has none: of switches, then of interrupts' begins and ends in turns.
    u64 tracepoints[TRACEPOINTS];
};

// A jump from behind an original's fentry nop to behind its copy's.
struct patch {
    u64 at, to;
    u8 replaced[JUMP_BYTES];
    u8 insides;  // boundaries of instructions within the replaced bytes
    u8 written;  // the jump is there
    u8 unused;
};

// An instruction or return address of a copy, and the lower half of its counterpart's address in the
// original. The upper half of all text of the kernel is ones.
struct origin {
    u32 at;  // from text_begin
    s32 original;
};

// A module that originals lie in. Their static keys and tables are in its memory, so it must not go.
struct held {
    u64 module;
    u8 name[56];
};

// Text in which a call of its function is open, and the counters of what takes its time: a processor's own, or,
// if less than 0, inverted, one for all.
struct open_span {
    u32 from, to;  // from text_begin
    s32 deoptimised, ticks, virtual_ticks;
};

enum state {
    OUT,        // nothing leads to copies, and no thread is in them
    INSTALLED,  // jumps lead to copies
    LEAVING,    // no jump leads to copies, but threads may be in them
};

#define STATUS_VERSION 3

// What the control file begins with. It fills STATUS_BYTES; counters follow: one row of `cpu_counters`
// for each of `cpus`, then `shared_counters`.
#define STATUS_BYTES 4096
struct status {
    u32 version, state;
    u32 keep, barred;
    u64 patches, text_begin, text_end;
    u64 cpus, cpu_counters, shared_counters;
    u64 install_ns, remove_ns, stopped_ns;  // of the last time
    u64 tasks, moved;                       // walked, and return addresses patched, in the last pause
    u64 hooked, stuck;                      // why the last undo is not complete
    u64 foreign;                            // jumps that others wrote over
    u64 taken;                              // the original whose bytes were not the expected ones
    u64 trapped;                            // threads that met a breakpoint while jumps were written
    u64 ticks, now_ns;                      // the time-stamp counter and the clock when this was read
    u64 interrupt_ticks, lost_threads;      // of virtual time: clock.c
};

enum verb {
    INSTALL = 1,  // write the jumps
    REMOVE = 2,   // revert them; threads leave copies by themselves
    UNDO = 3,     // revert them, and deoptimise every thread in copies
    KEEP = 4,     // whether closing the file for the last time undoes nothing
};

struct command {
    u32 verb, argument;
};

// Made by the module writer.
extern struct facts facts;
extern struct patch patches[];
extern const struct origin origins[];
extern const struct held held_modules[];
extern const struct open_span open_spans[];
extern u8 text_begin[], text_end[];
extern u64 cpu_counters[];  // an offset in each processor's own memory
extern u64 shared_counters[];
extern const u8 control_operations[];  // struct proc_ops

// Of the kernel.
extern int _printk(const char *format, ...);
extern void mutex_lock(void *), mutex_unlock(void *), __mutex_init(void *, const char *, void *);
extern u8 text_mutex[];
extern void text_poke_queue(void *at, const void *code, u64 bytes, const void *emulated);
extern void text_poke_finish(void);
extern int tracepoint_probe_register(void *, void *probe, void *data);
extern int tracepoint_probe_unregister(void *, void *probe, void *data);
extern void synchronize_rcu(void);
extern int stop_machine(int (*)(void *), void *, const void *processors);
extern void synchronize_rcu_tasks(void), synchronize_rcu_tasks_rude(void);
extern u64 ktime_get_mono_fast_ns(void);
extern void msleep(u32);
extern u8 init_task[], __cpu_online_mask[], __cpu_possible_mask[];
extern u32 nr_cpu_ids;
extern u64 __per_cpu_offset[];
extern int nr_threads;
extern u8 *idle_task(int processor);
extern void put_task_stack(void *task);
extern void __rcu_read_lock(void), __rcu_read_unlock(void);
extern void *vmalloc(u64 bytes);
extern void vfree(const void *);
extern void __unwind_start(void *state, void *task, void *regs, u64 *first_frame);
extern int unwind_next_frame(void *state);
extern u64 unwind_get_return_address(void *state), *unwind_get_return_address_ptr(void *state);
extern void *proc_create(const char *, u32 mode, void *parent, const void *operations);
extern void proc_remove(void *);
extern s64 simple_read_from_buffer(void *to, u64 count, s64 *position, const void *from, u64 bytes);
extern s64 simple_write_to_buffer(void *to, u64 bytes, s64 *position, const void *from, u64 count);
extern void *find_module(const void *name);
extern u8 try_module_get(void *module);
extern void module_put(void *module);
extern int register_die_notifier(void *), unregister_die_notifier(void *);
extern int register_module_notifier(void *), unregister_module_notifier(void *);

struct notifier {
    int (*call)(struct notifier *, u64 action, void *data);
    struct notifier *next;
    int priority;
};

// entries.c: jumps at the originals.
int write_jumps(struct status *);
void take_jumps_back(struct status *);
int at_breakpoint(struct notifier *, u64 action, void *die);

// threads.c: return addresses of threads.
int lead_out(struct status *);

// clock.c: virtual time.
int start_clock(void);
void stop_clock(void);
void end_call(u8 *task, int runs_here, u64 address);
void read_clock(struct status *);

// A field of one of the kernel's structures.
#define FIELD(type, base, offset) (*(type *)((u8 *)(base) + (offset)))
