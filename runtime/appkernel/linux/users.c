/* Users other than root: which lent processors each of them may use. Who has no such right does not open the
 * device. Rights are of numbers, not of what is lent at a time, so they hold when processors are lent again. */
#include <linux/cred.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "fettle_smp.h"

#define USERS_MOST 64

struct right {
    struct list_head node;
    kuid_t user;
    struct cpumask numbers;
};

static LIST_HEAD(rights);
static DEFINE_SPINLOCK(lock);
static u32 count;

/* The caller has the lock. */
static struct right *find(kuid_t user)
{
    struct right *right;
    list_for_each_entry(right, &rights, node) {
        if (uid_eq(right->user, user))
            return right;
    }
    return NULL;
}

static void forget(kuid_t user)
{
    struct right *right;
    spin_lock(&lock);
    right = find(user);
    if (right) {
        list_del(&right->node);
        count--;
    }
    spin_unlock(&lock);
    kfree(right);
}

/* Gives a user the right to use these processors while they are lent, or with none takes it away. What runs there
 * goes on. */
int users_allow(kuid_t user, const struct cpumask *numbers)
{
    struct right *made, *right;
    int error = 0;
    if (cpumask_empty(numbers)) {
        forget(user);
        return 0;
    }
    made = kzalloc(sizeof *made, GFP_KERNEL);
    if (!made)
        return -ENOMEM;
    made->user = user;
    spin_lock(&lock);
    right = find(user);
    if (right) {
        cpumask_copy(&right->numbers, numbers);
    } else if (count < USERS_MOST) {
        cpumask_copy(&made->numbers, numbers);
        list_add_tail(&made->node, &rights);
        made = NULL;
        count++;
    } else {
        error = -ENOSPC;
    }
    spin_unlock(&lock);
    kfree(made);
    return error;
}

bool users_is_administrator(void)
{
    return capable(CAP_SYS_ADMIN);
}

bool users_has_right(void)
{
    bool has;
    spin_lock(&lock);
    has = find(current_uid()) != NULL;
    spin_unlock(&lock);
    return has;
}

/* Lent processors that the current user may use, by index. */
u64 users_indices(void)
{
    const struct right *right;
    u64 indices = 0;
    if (users_is_administrator())
        return ~0ull;
    spin_lock(&lock);
    right = find(current_uid());
    if (right)
        indices = processors_indices(&right->numbers);
    spin_unlock(&lock);
    return indices;
}

/* Whether the current user may move a task: its own, or any as who may trace it. */
bool users_may_move(struct task_struct *task)
{
    const struct cred *theirs = __task_cred(task);
    kuid_t user = current_uid();
    return capable(CAP_SYS_PTRACE) ||
           (uid_eq(theirs->euid, user) && uid_eq(theirs->suid, user) && uid_eq(theirs->uid, user));
}

void users_say(struct answer *answer)
{
    struct right *right;
    const char *separator = "";
    spin_lock(&lock);
    list_for_each_entry(right, &rights, node) {
        say(answer, "%s{\"user\":%u,\"processors\":\"%*pbl\"}", separator,
            from_kuid(&init_user_ns, right->user), cpumask_pr_args(&right->numbers));
        separator = ",";
    }
    spin_unlock(&lock);
}

void users_exit(void)
{
    struct right *right, *next;
    list_for_each_entry_safe(right, next, &rights, node)
        kfree(right);
}
