/* Counts and virtual time for a guest that runs Linux (QEMU's plugin interface 1, 7.2 and newer).
 *
 * Each vCPU has a clock: an instruction is one tick, `pause` forty. While the guest measures, no vCPU that
 * executes gets further ahead of another than a quantum: what N of them do in T ticks they would do side by side
 * in T ticks. A vCPU that waits for an interrupt is left out, and goes on at the clock of the others. Loaded by
 * LD_PRELOAD as well, the library makes QEMU's monotonic clock follow (one nanosecond a tick), so that the guest's
 * timers count ticks. At other times (the start, lending, the end) all run freely, at the host's time.
 *
 * A program in the guest says when: by an instruction that does nothing (0f 1f 80 KIND 5e a5 5a).
 *
 *   0x60  the measurement begins, with a short quantum    0x61  with a long one
 *   0x62  it ends                                         0x63  counting begins, without a common clock
 *
 * An end adds to the file `out=`: ticks that passed, and for each vCPU its instructions in user mode, in the kernel,
 * those of loops that wait, and entries to the kernel. What waits is found by its `pause`: the instructions from one
 * `pause` to the next one are those of a loop that waits if it is the same `pause`, nothing in user mode came between, and
 * they are few.
 *
 * Work of QEMU that needs all vCPUs to stop would never be done while one waits for another here. So a wait ends after
 * a while, and is counted as a slip. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "qemu-plugin.h"

enum { MOST = 16, PAUSE_TICKS = 40, LOOP_MOST = 400, SHORT = 200, LONG = 4000, PATIENCE_NS = 50000000 };
enum { BEGIN_SHORT = 0x60, BEGIN_LONG, END, COUNT };
enum mode { FREE, LOCKSTEP, COUNTING };

/* What a block of instructions is. */
struct block {
	uint64_t address;
	uint32_t instructions, ticks;
	bool pauses, is_kernel;
};

struct counts {
	uint64_t user, kernel, waiting, entries;
};

static struct vcpu {
	_Atomic uint64_t clock;
	uint64_t limit; /* the clock at which it has to look at the others */
	_Atomic bool executes, waits;
	struct counts counts, before;
	uint64_t last_pause, since_pause;
	bool was_kernel, saw_user;
	pthread_cond_t turn;
} __attribute__((aligned(128))) vcpus[MOST];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic enum mode mode;
static uint64_t quantum = SHORT, begin_clock, slips;
static int64_t base;            /* QEMU's time at tick 0 of the measurement's clocks, ns */
static int64_t lag;             /* how far QEMU's time is behind the host's, ns */
static uint64_t present;        /* the least clock of those that execute */
static int64_t idle_since = -1; /* the host's time since which none executes */
static FILE *out;

static int64_t host_time(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* The least clock of the vCPUs that execute but one, or the greatest number. Under the lock. */
static uint64_t least_but(unsigned one)
{
	uint64_t least = UINT64_MAX;
	for (unsigned i = 0; i < MOST; i++)
		if (i != one && vcpus[i].executes && vcpus[i].clock < least)
			least = vcpus[i].clock;
	return least;
}

/* Moves the common time on. Under the lock. */
static void follow(void)
{
	uint64_t least = least_but(MOST);
	if (least != UINT64_MAX) {
		if (least > present)
			present = least;
		idle_since = -1;
		return;
	}
	int64_t now = host_time();
	if (idle_since >= 0)
		present += now - idle_since;
	idle_since = now;
}

static void wake_others(void)
{
	for (unsigned i = 0; i < MOST; i++)
		if (vcpus[i].waits && (mode != LOCKSTEP || vcpus[i].clock < present + quantum))
			pthread_cond_signal(&vcpus[i].turn);
}

/* A vCPU has come to its limit: it waits until the others are near. */
static void wait_for_others(unsigned v)
{
	struct vcpu *c = &vcpus[v];
	pthread_mutex_lock(&lock);
	for (;;) {
		follow();
		wake_others();
		uint64_t least = least_but(v);
		if (mode != LOCKSTEP || least == UINT64_MAX || c->clock < least + quantum)
			break;
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += PATIENCE_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		c->waits = true;
		int late = pthread_cond_timedwait(&c->turn, &lock, &until);
		c->waits = false;
		if (late && least_but(v) == least) {
			slips++;
			break;
		}
	}
	c->limit = c->clock + quantum / 4;
	pthread_mutex_unlock(&lock);
}

static void count(struct vcpu *c, const struct block *block)
{
	*(block->is_kernel ? &c->counts.kernel : &c->counts.user) += block->instructions;
	c->counts.entries += block->is_kernel && !c->was_kernel;
	c->was_kernel = block->is_kernel;
	c->saw_user |= !block->is_kernel;
	c->since_pause += block->instructions;
	if (!block->pauses)
		return;
	if (c->last_pause == block->address && !c->saw_user && c->since_pause <= LOOP_MOST)
		c->counts.waiting += c->since_pause;
	c->last_pause = block->address;
	c->since_pause = 0;
	c->saw_user = false;
}

static void idles(qemu_plugin_id_t id, unsigned v)
{
	(void)id;
	pthread_mutex_lock(&lock);
	vcpus[v].executes = false;
	follow();
	wake_others();
	pthread_mutex_unlock(&lock);
}

/* A vCPU executes that did not. */
static void resumes(unsigned v)
{
	pthread_mutex_lock(&lock);
	follow();
	if (vcpus[v].clock < present)
		vcpus[v].clock = present;
	vcpus[v].limit = 0;
	vcpus[v].executes = true;
	idle_since = -1;
	pthread_mutex_unlock(&lock);
}

static void executes(unsigned v, void *data)
{
	const struct block *block = data;
	struct vcpu *c = &vcpus[v];
	if (v >= MOST)
		return;
	if (!atomic_load_explicit(&c->executes, memory_order_relaxed))
		resumes(v);
	if (mode == FREE)
		return;
	count(c, block);
	if (mode != LOCKSTEP)
		return;
	uint64_t clock = atomic_load_explicit(&c->clock, memory_order_relaxed) + block->ticks;
	atomic_store_explicit(&c->clock, clock, memory_order_relaxed);
	if (clock >= c->limit)
		wait_for_others(v);
}

/* Under the lock; no vCPU's clock moves. */
static void begin(enum mode wanted)
{
	uint64_t greatest = 0;
	for (unsigned i = 0; i < MOST; i++)
		if (vcpus[i].clock > greatest)
			greatest = vcpus[i].clock;
	for (unsigned i = 0; i < MOST; i++) {
		if (vcpus[i].executes)
			vcpus[i].clock = greatest;
		vcpus[i].limit = 0;
		vcpus[i].before = vcpus[i].counts;
	}
	present = begin_clock = greatest;
	idle_since = -1;
	slips = 0;
	if (wanted == LOCKSTEP)
		base = host_time() - lag - (int64_t)greatest;
	mode = wanted;
}

static void end(unsigned v)
{
	if (mode == LOCKSTEP)
		lag = host_time() - (base + (int64_t)present);
	mode = FREE;
	fprintf(out, "ticks %lu slips %lu by %u\n", vcpus[v].clock - begin_clock, slips, v);
	for (unsigned i = 0; i < MOST; i++) {
		struct counts *now = &vcpus[i].counts, *then = &vcpus[i].before;
		fprintf(out, "vcpu %u user %lu kernel %lu waiting %lu entries %lu\n", i, now->user - then->user,
			now->kernel - then->kernel, now->waiting - then->waiting, now->entries - then->entries);
	}
	fflush(out);
	wake_others();
}

static void marks(unsigned v, void *kind)
{
	pthread_mutex_lock(&lock);
	follow();
	switch ((uintptr_t)kind) {
	case BEGIN_SHORT:
	case BEGIN_LONG:
		quantum = (uintptr_t)kind == BEGIN_SHORT ? SHORT : LONG;
		begin(LOCKSTEP);
		break;
	case COUNT:
		begin(COUNTING);
		break;
	case END:
		if (mode != FREE)
			end(v);
	}
	pthread_mutex_unlock(&lock);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	size_t instructions = qemu_plugin_tb_n_insns(tb);
	struct block *block = calloc(1, sizeof *block);
	block->address = qemu_plugin_tb_vaddr(tb);
	block->is_kernel = block->address >> 47 != 0;
	block->instructions = block->ticks = instructions;
	for (size_t i = 0; i < instructions; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		int kind = marker(insn);
		if (pauses(insn)) {
			block->ticks += PAUSE_TICKS - 1;
			block->pauses = true;
		}
		if (kind >= 0)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marks, 0, (void *)(uintptr_t)kind);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executes, 0, block);
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_MONOTONIC)
		return syscall(SYS_clock_gettime, clock, t);
	int64_t ns;
	if (mode == LOCKSTEP) {
		pthread_mutex_lock(&lock);
		follow();
		ns = base + (int64_t)present;
		pthread_mutex_unlock(&lock);
	} else {
		ns = host_time() - lag;
	}
	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return 0;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "plugin: out=FILE is missing\n");
		return -1;
	}
	out = fopen(argv[0] + 4, "w");
	if (!out) {
		fprintf(stderr, "plugin: %s cannot be written\n", argv[0] + 4);
		return -1;
	}
	for (unsigned i = 0; i < MOST; i++)
		pthread_cond_init(&vcpus[i].turn, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_vcpu_idle_cb(id, idles);
	return 0;
}
