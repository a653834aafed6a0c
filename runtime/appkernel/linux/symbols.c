/* Functions of Linux that it does not export to modules.
 *
 * The way is that of LTTng's modules: a kprobe knows every function's address, so it finds
 * kallsyms_lookup_name, and that finds the others. Calls go through static calls, which are direct
 * jumps: with indirect branch tracking Linux seals functions that it never calls by address.
 */
#include <asm/syscall.h>
#include <linux/kprobes.h>
#include <linux/nospec.h>
#include <linux/static_call.h>

#include "fettle_smp.h"

static long by_table(const struct pt_regs *regs, unsigned int number);
static unsigned long no_lookup(const char *name)
{
    return 0;
}

DEFINE_STATIC_CALL(fettle_run_call, by_table);
DEFINE_STATIC_CALL(fettle_lookup, no_lookup);
static const sys_call_ptr_t *table;
void (*symbols_account_user_time)(struct task_struct *task, u64 nanoseconds);

/* Kernels of before 2024 have no function for all calls. */
static long by_table(const struct pt_regs *regs, unsigned int number)
{
    return table[number](regs);
}

long symbols_run_call(struct pt_regs *regs, unsigned int number)
{
    if (number >= NR_syscalls)
        return -ENOSYS;
    return static_call(fettle_run_call)(regs, array_index_nospec(number, NR_syscalls));
}

static void *find(const char *name)
{
    return (void *)static_call(fettle_lookup)(name);
}

int symbols_init(void)
{
    struct kprobe probe = {.symbol_name = "kallsyms_lookup_name"};
    long (*all)(const struct pt_regs *regs, unsigned int number);
    int error = register_kprobe(&probe);
    if (error) {
        pr_err("this kernel does not tell where its functions are (kprobes: %d)\n", error);
        return error;
    }
    static_call_update(fettle_lookup, (void *)probe.addr);
    unregister_kprobe(&probe);
    symbols_account_user_time = find("account_user_time");
    all = find("x64_sys_call");
    if (all)
        static_call_update(fettle_run_call, all);
    else
        table = find("sys_call_table");
    if (!all && !table) {
        pr_err("this kernel has neither x64_sys_call nor sys_call_table\n");
        return -ENOENT;
    }
    return 0;
}
