/* Virtual time and chosen schedules for QEMU (plugin interface 1, QEMU 7.2 and newer).
 *
 * Each vCPU has a clock of its own: one instruction is one tick, `pause` forty. Only one vCPU executes at a
 * time: the one whose clock is least, until it is ahead of the next one by a quantum. Quanta are drawn from a seed,
 * so the same seed gives the same interleaving, and another seed another one. Because vCPUs run by their clocks,
 * N of them do in T ticks what they would do side by side in T ticks.
 *
 * Loaded by LD_PRELOAD as well, it makes QEMU's monotonic clock the executing vCPU's (ten nanoseconds a tick), so that
 * the guest's timers count ticks.
 *
 * The guest's kernel begins with `begin` (0f 1f 80, 0x58, 5e a5 5a: an instruction that does nothing). Until then, in the
 * firmware, vCPUs run as they like. `settle` (0x59) gives the host a moment, in no virtual time.
 *
 * A vCPU that waits for an interrupt has no turns. When the guest wakes it, it says so by an instruction that
 * does nothing (0f 1f 80, 0x50 + vCPU, 5e a5 5a): by that, not by when the host delivers the interrupt, the vCPU has turns
 * again. When all wait, nothing can ever wake one: the run ends with status 99.
 *
 * A run that goes on for longer than `most` ticks ends with status 98 and says where each vCPU is.
 *
 * Options: seed=N, q=N (longest quantum, ticks), low=N (shortest), most=N (ticks). */
#define _GNU_SOURCE
#include <pthread.h>
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

enum { MOST = 64, NOBODY = -1, PAUSE_TICKS = 40, WAKE_TICKS = 200, NS_PER_TICK = 10 };

static struct vcpu {
	uint64_t clock, until, at; /* `at` is the address of what it executes */
	bool has_turns; /* otherwise it waits for an interrupt */
	pthread_cond_t turn;
} vcpus[MOST];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int owner = NOBODY;
static volatile uint64_t present; /* the executing vCPU's clock */
static uint64_t state = 1, longest = 2000, shortest = 100, most = UINT64_MAX, turns;
static volatile bool began;
static uint64_t base; /* the host's time when it began */

static uint64_t quantum(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return shortest + (state >> 16) % (longest - shortest + 1);
}

/* Gives the turn to the vCPU whose clock is least. Under the lock. */
static void choose(void)
{
	int best = NOBODY, next = NOBODY;
	for (int i = 0; i < MOST; i++) {
		if (!vcpus[i].has_turns)
			continue;
		if (best == NOBODY || vcpus[i].clock < vcpus[best].clock) {
			next = best;
			best = i;
		} else if (next == NOBODY || vcpus[i].clock < vcpus[next].clock) {
			next = i;
		}
	}
	owner = best;
	if (best == NOBODY)
		return;
	turns++;
	vcpus[best].until = next == NOBODY ? vcpus[best].clock + longest : vcpus[next].clock + quantum();
	pthread_cond_signal(&vcpus[best].turn);
}

static void wait_for_turn(unsigned v)
{
	struct vcpu *c = &vcpus[v];
	pthread_mutex_lock(&lock);
	/* It may have got its turn on the way here. */
	if (owner == (int)v && c->clock >= c->until)
		choose();
	/* A vCPU that has been woken by the host already waits until the guest has announced it. */
	while (owner != (int)v)
		pthread_cond_wait(&c->turn, &lock);
	present = c->clock;
	pthread_mutex_unlock(&lock);
}

static void say_where(void)
{
	for (int i = 0; i < MOST; i++)
		if (vcpus[i].clock)
			fprintf(stderr, "lockstep: vCPU %d at tick %lu, address %#lx%s\n", i, vcpus[i].clock, vcpus[i].at,
				vcpus[i].has_turns ? "" : ", waiting for an interrupt");
}

/* A block begins: its ticks are in the low 12 bits. */
static void executes(unsigned v, void *block)
{
	if (!began)
		return;
	struct vcpu *c = &vcpus[v];
	if (owner != (int)v || c->clock >= c->until)
		wait_for_turn(v);
	c->clock += (uintptr_t)block & 0xfff;
	c->at = (uintptr_t)block >> 12;
	present = c->clock;
	if (c->clock > most) {
		fprintf(stderr, "lockstep: more than %lu ticks\n", most);
		say_where();
		_exit(98);
	}
}

static void waits(qemu_plugin_id_t id, unsigned v)
{
	(void)id;
	pthread_mutex_lock(&lock);
	if (began && owner == (int)v) {
		vcpus[v].has_turns = false;
		choose();
		if (owner == NOBODY) {
			fprintf(stderr, "lockstep: all CPUs wait for an interrupt, at tick %lu\n", vcpus[v].clock);
			say_where();
			_exit(99);
		}
	}
	pthread_mutex_unlock(&lock);
}

static void wakes(unsigned v, void *which)
{
	struct vcpu *c = &vcpus[(uintptr_t)which];
	pthread_mutex_lock(&lock);
	if (!c->has_turns) {
		uint64_t from = vcpus[v].clock + WAKE_TICKS;
		c->has_turns = true;
		if (c->clock < from)
			c->clock = from;
		if (vcpus[v].until > c->clock + shortest)
			vcpus[v].until = c->clock + shortest;
	}
	pthread_mutex_unlock(&lock);
}

/* The first vCPU begins, and virtual time with it. */
static void begins(unsigned v, void *data)
{
	(void)data;
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	pthread_mutex_lock(&lock);
	if (!began) {
		base = t.tv_sec * 1000000000ull + t.tv_nsec;
		vcpus[v].has_turns = true;
		choose();
		began = true;
	}
	pthread_mutex_unlock(&lock);
}

static void settles(unsigned v, void *data)
{
	(void)v;
	(void)data;
	usleep(20000);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	(void)id;
	size_t count = qemu_plugin_tb_n_insns(block), ticks = count;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
		int kind = marker(insn);
		void *which = (void *)(uintptr_t)(kind & 0x0f);
		if (pauses(insn))
			ticks += PAUSE_TICKS - 1;
		if (kind >= 0x50 && kind < 0x58)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, wakes, 0, which);
		else if (kind == 0x58)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, begins, 0, which);
		else if (kind == 0x59)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, settles, 0, which);
	}
	if (ticks > 0xfff)
		ticks = 0xfff;
	uintptr_t both = qemu_plugin_tb_vaddr(block) << 12 | ticks;
	qemu_plugin_register_vcpu_tb_exec_cb(block, executes, 0, (void *)both);
}

static void ends(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	fprintf(stderr, "lockstep: tick %lu, %lu turns\n", present, turns);
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_MONOTONIC || !began)
		return syscall(SYS_clock_gettime, clock, t);
	uint64_t ns = base + present * NS_PER_TICK;
	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return 0;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "seed=", 5))
			state = strtoull(argv[i] + 5, NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
		else if (!strncmp(argv[i], "q=", 2))
			longest = strtoull(argv[i] + 2, NULL, 10);
		else if (!strncmp(argv[i], "low=", 4))
			shortest = strtoull(argv[i] + 4, NULL, 10);
		else if (!strncmp(argv[i], "most=", 5))
			most = strtoull(argv[i] + 5, NULL, 10);
		else {
			fprintf(stderr, "lockstep: %s is none of seed=N, q=N, low=N, most=N\n", argv[i]);
			return -1;
		}
	}
	if (shortest == 0 || longest < shortest) {
		fprintf(stderr, "lockstep: 1 <= low <= q must hold\n");
		return -1;
	}
	for (int i = 0; i < MOST; i++)
		pthread_cond_init(&vcpus[i].turn, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_vcpu_idle_cb(id, waits);
	qemu_plugin_register_atexit_cb(id, ends, NULL);
	return 0;
}
