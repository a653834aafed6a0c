/* The device: commands are written to it, in words, and the answer is read from the same open file.
 *
 *     lend LIST [hold]   give-back [LIST]   home PID
 *     join [mixed] [LIST]   attach PID [mixed] [LIST]
 *     allow USER LIST|none   poll 0|1   status   log   ignore-changes 0|1   keep-waiting 0|1 (for tests)
 *
 * Users other than root may only join, attach and bring home what is theirs, and read; those alone who have a right
 * to processors (users.c) open the device.
 * A command that fails gives an error number, and the answer says why. With `hold`, processors come
 * back when the file is closed, however that happens. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "fettle_smp.h"

#define ANSWER_SIZE 65536
#define COMMAND_MAX 512

struct session {
    struct mutex lock;
    struct answer answer;
    struct cpumask held;
};

struct command {
    const char *name;
    int (*run)(struct session *session, char *arguments);
    bool is_for_all; /* who have opened the device */
};

void say(struct answer *answer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    answer->length += vscnprintf(answer->text + answer->length, answer->size - answer->length,
                                 format, arguments);
    va_end(arguments);
}

/* Bits of lent processors, all if the list is empty. */
static int parse_lent(struct answer *answer, const char *list, u64 *indices)
{
    cpumask_var_t numbers;
    int error = 0;
    *indices = ~0ull;
    if (!list || !*list)
        return 0;
    if (!alloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    error = cpulist_parse(list, numbers);
    *indices = error ? 0 : processors_indices(numbers);
    free_cpumask_var(numbers);
    if (!error && *indices)
        return 0;
    say(answer, "no processor of %s is lent", list);
    return error ? error : -EINVAL;
}

static int run_lend(struct session *session, char *arguments)
{
    char *list = strsep(&arguments, " ");
    cpumask_var_t numbers;
    int error;
    if (!alloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    error = cpulist_parse(list ? list : "", numbers);
    if (error)
        say(&session->answer, "%s is no list of processors of this machine", list ? list : "");
    else
        error = processors_lend(numbers, &session->answer);
    if (!error && arguments && !strcmp(arguments, "hold"))
        cpumask_or(&session->held, &session->held, numbers);
    free_cpumask_var(numbers);
    return error;
}

static int run_give_back(struct session *session, char *arguments)
{
    cpumask_var_t numbers;
    int error = 0;
    if (!alloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    if (arguments && *arguments)
        error = cpulist_parse(arguments, numbers);
    else
        processors_numbers(~0ull, numbers);
    if (error)
        say(&session->answer, "%s is no list of processors of this machine", arguments);
    else
        error = processors_give_back(numbers, &session->answer);
    if (!error)
        cpumask_andnot(&session->held, &session->held, numbers);
    free_cpumask_var(numbers);
    return error;
}

/* [mixed] [LIST] */
static int parse_membership(struct session *session, char *arguments, struct membership *as)
{
    static const char mixed[] = "mixed";
    size_t length = sizeof mixed - 1;
    int error;
    as->is_mixed = arguments && !strncmp(arguments, mixed, length) &&
                    (!arguments[length] || arguments[length] == ' ');
    if (as->is_mixed)
        arguments = arguments[length] ? arguments + length + 1 : NULL;
    error = parse_lent(&session->answer, arguments, &as->cpus);
    if (!error && !processors_usable()) {
        say(&session->answer, "no processor is lent: `fettle smp lend` first");
        return -ENODEV;
    }
    as->allowed = users_indices();
    as->cpus &= as->allowed;
    if (!error && !as->cpus) {
        say(&session->answer, "user %u has no right to these processors: `fettle smp allow` gives it",
            from_kuid(&init_user_ns, current_uid()));
        error = -EPERM;
    }
    return error;
}

static int run_join(struct session *session, char *arguments)
{
    struct membership as;
    int error = parse_membership(session, arguments, &as);
    return error ? error : members_join(current, as);
}

static int parse_pid(struct answer *answer, const char *text, pid_t *pid)
{
    int error = text ? kstrtoint(text, 10, pid) : -EINVAL;
    if (error)
        say(answer, "%s is no process number", text ? text : "");
    return error;
}

static int run_attach(struct session *session, char *arguments)
{
    char *number = strsep(&arguments, " ");
    struct membership as;
    pid_t pid;
    int error = parse_pid(&session->answer, number, &pid);
    if (!error)
        error = parse_membership(session, arguments, &as);
    return error ? error : members_attach(pid, as, &session->answer);
}

static int run_allow(struct session *session, char *arguments)
{
    char *number = strsep(&arguments, " ");
    cpumask_var_t numbers;
    u32 user;
    int error = number ? kstrtou32(number, 10, &user) : -EINVAL;
    if (error) {
        say(&session->answer, "%s is no user's number", number ? number : "");
        return error;
    }
    if (!zalloc_cpumask_var(&numbers, GFP_KERNEL))
        return -ENOMEM;
    if (!arguments || strcmp(arguments, "none"))
        error = cpulist_parse(arguments ? arguments : "", numbers);
    if (error)
        say(&session->answer, "%s is no list of processors of this machine", arguments ? arguments : "");
    else
        error = users_allow(make_kuid(&init_user_ns, user), numbers);
    if (error == -ENOSPC)
        say(&session->answer, "too many users have a right to processors");
    free_cpumask_var(numbers);
    return error;
}

static int run_home(struct session *session, char *arguments)
{
    pid_t pid;
    int error = parse_pid(&session->answer, arguments, &pid);
    return error ? error : members_leave(pid, &session->answer);
}

static void say_cpu(struct answer *answer, const struct processor *cpu, const char *separator)
{
    say(answer,
        "%s{\"processor\":%u,\"state\":\"%s\",\"calls\":%llu,\"local_calls\":%llu,\"faults\":%llu,"
        "\"traps\":%llu,\"pokes\":%llu,\"ticks\":%llu,\"switches\":%llu,\"flushes\":%llu,"
        "\"steals\":%llu,\"idle_ns\":%llu}",
        separator, cpu->number,
        cpu->failure.is_set ? "failed" : LOAD(cpu->running) ? "running" : "idle", cpu->calls,
        cpu->local_calls, cpu->faults, cpu->traps, cpu->pokes, cpu->ticks, cpu->switches,
        cpu->flushes, cpu->steals, mul_u64_u64_div_u64(cpu->idle, 1000000, tsc_khz));
}

static int run_status(struct session *session, char *arguments)
{
    struct answer *answer = &session->answer;
    const char *separator = "";
    u64 rest;
    say(answer, "{\"processors\":[");
    for (rest = processors_lent(); rest; rest &= rest - 1, separator = ",")
        say_cpu(answer, world_cpu(__builtin_ctzl(rest)), separator);
    say(answer, "],\"threads\":[");
    members_say(answer);
    say(answer, "],\"users\":[");
    users_say(answer);
    say(answer, "],\"invalidations\":%llu,\"bells\":%llu}", spaces_invalidations,
        shared->bells_rung);
    return 0;
}

static const char *const what_happened[] = {"", "up", "left", "failure", "recalled"};

static int run_log(struct session *session, char *arguments)
{
    u64 end = LOAD(shared->notes_written), place = end > MAX_NOTES ? end - MAX_NOTES : 0;
    const char *separator = "";
    say(&session->answer, "[");
    for (; place < end; place++, separator = ",") {
        struct note *note = &shared->notes[place % MAX_NOTES];
        u32 what = LOAD(note->what);
        say(&session->answer, "%s{\"tick\":%llu,\"index\":%u,\"what\":\"%s\",\"a\":%llu,\"b\":%llu}",
            separator, note->tick, note->cpu,
            what < ARRAY_SIZE(what_happened) ? what_happened[what] : "?", note->a, note->b);
    }
    say(&session->answer, "]");
    return 0;
}

static int run_ignore_changes(struct session *session, char *arguments)
{
    return kstrtobool(arguments ? arguments : "", &spaces_ignore_changes);
}

/* Whether processors without a thread look for one without end, and never sleep. */
static int run_poll(struct session *session, char *arguments)
{
    bool polls;
    int error = kstrtobool(arguments ? arguments : "", &polls);
    if (!error)
        STORE(shared->polls, polls);
    return error;
}

static int run_keep_waiting(struct session *session, char *arguments)
{
    return kstrtobool(arguments ? arguments : "", &futexes_keep_waiting);
}

static const struct command commands[] = {
    {"lend", run_lend},     {"give-back", run_give_back},
    {"join", run_join, true},     {"attach", run_attach, true},
    {"home", run_home, true},     {"status", run_status, true},
    {"log", run_log, true},       {"ignore-changes", run_ignore_changes},
    {"allow", run_allow},
    {"keep-waiting", run_keep_waiting}, {"poll", run_poll},
};

static int run(struct session *session, char *text)
{
    char *name = strsep(&text, " ");
    u32 i;
    session->answer.length = 0;
    for (i = 0; i < ARRAY_SIZE(commands); i++)
        if (!strcmp(name, commands[i].name)) {
            if (commands[i].is_for_all || users_is_administrator())
                return commands[i].run(session, text);
            say(&session->answer, "only root may %s", name);
            return -EPERM;
        }
    say(&session->answer, "%s is no command", name);
    return -EINVAL;
}

static ssize_t on_write(struct file *file, const char __user *from, size_t size, loff_t *place)
{
    struct session *session = file->private_data;
    char *text;
    int error;
    if (size > COMMAND_MAX)
        return -EINVAL;
    text = memdup_user_nul(from, size);
    if (IS_ERR(text))
        return PTR_ERR(text);
    mutex_lock(&session->lock);
    error = run(session, strim(text));
    mutex_unlock(&session->lock);
    *place = 0;
    kfree(text);
    return error ? error : size;
}

static ssize_t on_read(struct file *file, char __user *to, size_t size, loff_t *place)
{
    struct session *session = file->private_data;
    ssize_t result;
    mutex_lock(&session->lock);
    result = simple_read_from_buffer(to, size, place, session->answer.text, session->answer.length);
    mutex_unlock(&session->lock);
    return result;
}

static int on_open(struct inode *inode, struct file *file)
{
    struct session *session;
    if (!users_is_administrator() && !users_has_right())
        return -EACCES;
    session = kzalloc(sizeof *session, GFP_KERNEL);
    if (!session)
        return -ENOMEM;
    session->answer.text = kvzalloc(ANSWER_SIZE, GFP_KERNEL);
    if (!session->answer.text) {
        kfree(session);
        return -ENOMEM;
    }
    session->answer.size = ANSWER_SIZE;
    mutex_init(&session->lock);
    file->private_data = session;
    return 0;
}

static int on_close(struct inode *inode, struct file *file)
{
    struct session *session = file->private_data;
    session->answer.length = 0;
    if (!cpumask_empty(&session->held))
        processors_give_back(&session->held, &session->answer);
    kvfree(session->answer.text);
    kfree(session);
    return 0;
}

static const struct file_operations operations = {
    .owner = THIS_MODULE,
    .open = on_open,
    .release = on_close,
    .read = on_read,
    .write = on_write,
    .llseek = default_llseek,
};

static struct miscdevice device = {
    .minor = MISC_DYNAMIC_MINOR,
    .name = "fettle-smp",
    .fops = &operations,
    .mode = 0666, /* on_open decides */
};

int control_init(void)
{
    return misc_register(&device);
}

void control_exit(void)
{
    misc_deregister(&device);
    users_exit();
}
