/* What the parts of the Linux module know of one another. */
#ifndef FETTLE_SMP_H
#define FETTLE_SMP_H

#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/task_work.h>

#include "../shared.h"

#undef pr_fmt
#define pr_fmt(fmt) "fettle-smp: " fmt

/* Text for the process that asked, in whole lines. */
struct answer {
    char *text;
    size_t length, size;
};

__printf(2, 3) void say(struct answer *answer, const char *format, ...);

/* symbols.c: functions of Linux that it does not export. */
int symbols_init(void);
long symbols_run_call(struct pt_regs *regs, unsigned int number);
extern void (*symbols_account_user_time)(struct task_struct *task, u64 nanoseconds);

/* world.c: the application kernel's memory. */
extern struct shared *shared;
int world_init(void);
void world_exit(void);
struct processor *world_cpu(u32 index);
struct thread *world_thread(u32 index);
int world_add_cpu(u32 index);
int world_add_thread(u32 index);
u64 world_boot_cr3(void);
u64 world_entry(void);
u64 world_top(void); /* the entry that every top-level table has for the kernel half */
void world_put_trampoline(void *low, u32 index);

/* processors.c */
int processors_init(void);
void processors_exit(void);
int processors_lend(const struct cpumask *wanted, struct answer *answer);
int processors_give_back(const struct cpumask *wanted, struct answer *answer);
void processors_stop_all(void);
u64 processors_lent(void); /* as bits, by index */
u64 processors_usable(void); /* those on which threads may start */
u64 processors_indices(const struct cpumask *numbers);
void processors_numbers(u64 indices, struct cpumask *numbers);
void processors_poke(u32 index);
u32 processors_choose(u64 allowed, u32 last);
bool processors_failed(u32 index);

/* bell.c */
int bell_init(void);
void bell_exit(void);

/* threads.c: the application kernel's threads. */
int thread_take(struct task_struct *task);
void thread_free(u32 index);
bool thread_start(u32 index, u64 cpus);
void thread_recall(u32 index);
void thread_wake(u32 index);
void threads_recall(u64 cpus);
u32 threads_end_waits(u32 space, u64 address);
bool threads_on(u64 cpus);

/* spaces.c: address spaces. */
struct space {
    struct mmu_notifier notifier;
    spinlock_t lock;
    int index;
    u32 out; /* its threads that are out */
    u64 *tables[MAX_CPUS];
};

struct space *space_get(struct mm_struct *mm);
void space_put(struct space *space);
int space_prepare(struct space *space, struct mm_struct *mm, u64 indices);
void space_follow(struct space *space, struct mm_struct *mm, unsigned long address);
void spaces_flush(u32 space);
void spaces_exit(void);
void spaces_for(struct mm_struct *mm, void (*what)(struct space *space));
extern u64 spaces_invalidations;
extern bool spaces_ignore_changes;

/* What a thread that is out has had of Linux lately (balance.c). Times in ticks. */
struct balance {
    u32 events;
    u64 ran_before; /* its time on lent processors when counting began */
    u64 served;     /* Linux's time for its calls and faults since then */
    u64 stays;      /* how long it would stay home next, ns */
};

bool balance_is_kernel_bound(struct balance *balance, const struct thread *thread);
void balance_begin(struct balance *balance, const struct thread *thread);
u64 balance_stay(struct balance *balance);

/* members.c: tasks that run on lent processors when they can. */
struct membership {
    u64 cpus;       /* lent processors that it is to run on */
    u64 allowed;    /* those that its user has a right to */
    bool is_mixed;  /* comes home while Linux has more to do with it than it has itself */
};

struct member {
    struct callback_head work;
    struct hlist_node node;
    struct rcu_head rcu;
    struct hrtimer timer;
    struct task_struct *task;
    struct space *space;
    u64 cpus;
    u64 allowed;
    bool is_mixed;
    struct balance balance;
    u64 avoided; /* processors where it must not start next */
    u32 last_cpu;
    int thread;        /* that a call's work waits with, or -1 */
    atomic_t is_queued;
    bool stays_home;
    bool is_done;
    bool is_nudged;    /* woken, since the module goes */
    u32 spins;
    u64 unfinished;    /* address of an instruction that has to be executed at home */
    u64 delay;
    u64 counted;       /* ticks that were reported to Linux */
    unsigned long next_page; /* behind those that the last write's fault had mapped */
    u32 ahead;         /* pages that it mapped ahead */
};

int members_init(void);
void members_exit(void);
int members_join(struct task_struct *task, struct membership as);
int members_attach(pid_t pid, struct membership as, struct answer *answer);
int members_leave(pid_t pid, struct answer *answer);
void member_again(struct member *member, u64 nanoseconds);
void member_drop(struct member *member);
u32 members_count(void);
void members_say(struct answer *answer);

/* users.c: users other than root. */
int users_allow(kuid_t user, const struct cpumask *numbers);
bool users_is_administrator(void);
bool users_has_right(void);
u64 users_indices(void);
bool users_may_move(struct task_struct *task);
void users_say(struct answer *answer);
void users_exit(void);

/* proxy.c: what a member does while it is out. */
void proxy_work(struct callback_head *work);

/* state.c: a program's state between Linux and the application kernel. */
bool state_fits(void);
void state_out(struct thread *thread);
void state_home(struct thread *thread);
void state_keys_home(struct thread *thread);
void state_registers_home(const struct thread *thread, struct pt_regs *regs);

/* faults.c */
int fault_handle(struct member *member, const struct thread *thread);

/* calls.c: system calls that need more than to be run. */
enum call_kind { CALL_PLAIN, CALL_WHOLE, CALL_LAST, CALL_OURS };
enum call_kind call_kind(u64 number);
long call_ours(struct member *member, struct pt_regs *regs);

/* futexes.c: whether the application kernel may answer calls about futexes. */
void futexes_out(struct space *space);
void futexes_home(struct space *space);
void futexes_gone(struct space *space);
void futexes_look(struct space *space);
void futexes_stay_home(struct mm_struct *mm);
long futexes_call(struct space *space, struct pt_regs *regs);
extern bool futexes_keep_waiting;

/* control.c: the device. */
int control_init(void);
void control_exit(void);

#endif
