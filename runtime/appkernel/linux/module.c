/* The module's life, and Linux's own: reboot, panic and suspend. */
#include <asm/cpufeature.h>
#include <asm/tsc.h>
#include <linux/module.h>
#include <linux/panic_notifier.h>
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "fettle_smp.h"

struct part {
    int (*init)(void);
    void (*exit)(void);
};

static void nothing(void)
{
}

static int spaces_init(void)
{
    return 0;
}

/* In this order; back in the other. */
static const struct part parts[] = {
    {symbols_init, nothing},      {world_init, world_exit},
    {spaces_init, spaces_exit},   {bell_init, bell_exit},
    {members_init, members_exit}, {processors_init, processors_exit},
    {control_init, control_exit},
};

static int on_stop(struct notifier_block *block, unsigned long event, void *data)
{
    processors_stop_all();
    return NOTIFY_DONE;
}

/* A suspended machine starts its processors anew: all must be Linux's. */
static int on_sleep(struct notifier_block *block, unsigned long event, void *data)
{
    struct answer answer = {NULL, 0, 0};
    cpumask_var_t numbers;
    if (event != PM_SUSPEND_PREPARE && event != PM_HIBERNATION_PREPARE)
        return NOTIFY_DONE;
    if (!alloc_cpumask_var(&numbers, GFP_KERNEL))
        return NOTIFY_BAD;
    processors_numbers(~0ull, numbers);
    processors_give_back(numbers, &answer);
    free_cpumask_var(numbers);
    return NOTIFY_OK;
}

static struct notifier_block before_reboot = {.notifier_call = on_stop};
static struct notifier_block after_panic = {.notifier_call = on_stop};
/* Before Linux's own, of priority 0, which lets no processor come on line from then on. */
static struct notifier_block before_sleep = {.notifier_call = on_sleep, .priority = 1};

static int lacks(void)
{
    if (!boot_cpu_has(X86_FEATURE_FSGSBASE) || !boot_cpu_has(X86_FEATURE_XSAVE)) {
        pr_err("processors without FSGSBASE and XSAVE cannot be lent\n");
        return -ENODEV;
    }
    if (check_tsc_unstable()) {
        pr_err("the processors' time-stamp counters are not synchronised\n");
        return -ENODEV;
    }
    return 0;
}

static void undo(int done)
{
    while (done--)
        parts[done].exit();
}

static int __init module_begin(void)
{
    int i, error = lacks();
    for (i = 0; !error && i < (int)ARRAY_SIZE(parts); i++)
        error = parts[i].init();
    if (error) {
        if (i)
            undo(i - 1);
        return error;
    }
    register_reboot_notifier(&before_reboot);
    atomic_notifier_chain_register(&panic_notifier_list, &after_panic);
    register_pm_notifier(&before_sleep);
    return 0;
}

static void __exit module_end(void)
{
    unregister_pm_notifier(&before_sleep);
    atomic_notifier_chain_unregister(&panic_notifier_list, &after_panic);
    unregister_reboot_notifier(&before_reboot);
    undo(ARRAY_SIZE(parts));
}

module_init(module_begin);
module_exit(module_end);
MODULE_DESCRIPTION("Lends processors to Fettle's application kernel, and takes them back");
MODULE_LICENSE("Dual MIT/GPL");
