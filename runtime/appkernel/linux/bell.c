/* The bell: an interrupt by which the application kernel wakes proxies that sleep. It goes to
 * processor 0, which is never lent. */
#include <asm/apic.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>

#include "fettle_smp.h"

static int line;

static irqreturn_t on_bell(int irq, void *data)
{
    u32 word;
    for (word = 0; word < THREAD_WORDS; word++) {
        u64 bits = TAKE(shared->bells[word]);
        for (; bits; bits &= bits - 1)
            thread_wake(word * 64 + __builtin_ctzl(bits));
    }
    return IRQ_HANDLED;
}

void bell_exit(void)
{
    free_irq(line, shared);
    irq_dispose_mapping(line);
}

int bell_init(void)
{
    struct irq_alloc_info info;
    int error;
    memset(&info, 0, sizeof info);
    /* Linux would choose the processor, and moving an interrupt waits until it comes. */
    info.mask = cpumask_of(0);
    line = irq_domain_alloc_irqs(x86_vector_domain, 1, NUMA_NO_NODE, &info);
    if (line <= 0)
        return -ENOSPC;
    irq_set_handler(line, handle_edge_irq);
    error = request_irq(line, on_bell, IRQF_NOBALANCING | IRQF_NO_THREAD, "fettle-smp", shared);
    if (error) {
        irq_dispose_mapping(line);
        return error;
    }
    if (!cpumask_test_cpu(0, irq_get_effective_affinity_mask(line))) {
        pr_err("the bell is not on processor 0\n");
        bell_exit();
        return -EBUSY;
    }
    shared->bell_vector = irqd_cfg(irq_get_irq_data(line))->vector;
    shared->bell_apic = per_cpu(x86_cpu_to_apicid, 0);
    return 0;
}
