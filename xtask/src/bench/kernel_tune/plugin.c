/* Exact counts and modelled instruction caches for a guest with one vCPU (QEMU's plugin interface 1, 7.2 and newer).
 *
 * A program in the guest says when: by an instruction that does nothing (0f 1f 80 KIND 5e a5 5a).
 *
 *   0x64  a measurement begins
 *   0x65  it ends: one line is added to the file `out=`
 *   0x66  it ends, and `out=`.0, the next time .1, gets all blocks of the kernel's that were executed: begin, end, how often
 *
 * The caches are those of many processors: lines of 64 bytes, sets chosen by the virtual address, the least recently
 * used line leaves. Programs use them, too; what is counted is what the kernel misses. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

enum { BEGIN = 0x64, END, END_WITH_BLOCKS };
enum { LINE_BITS = 6, SETS = 64, MOST_WAYS = 8, MOST_LINES = 130 };

struct line {
	uint64_t tag; /* where it is in the host's memory: another program's page is another line */
	unsigned set;
};

/* A translated block. One that was translated again has several. */
struct block {
	uint64_t from, to, executed;
	uint32_t instructions, lines;
	bool is_kernel;
	struct block *next;
	struct line line[];
};

struct cache {
	unsigned ways;
	uint64_t lines[SETS][MOST_WAYS];
	uint64_t misses;
};

static struct cache large = {.ways = 8}, small = {.ways = 4};
static struct block *blocks, *last;
static uint64_t kernel, user, jumps;
static bool is_measured;
static FILE *out;
static const char *name;

/* Whether the line was not there. It is the most recently used one now. */
static bool misses(struct cache *cache, const struct line *line)
{
	uint64_t *set = cache->lines[line->set];
	unsigned way = 0;
	while (way < cache->ways - 1 && set[way] != line->tag)
		way++;
	bool missed = set[way] != line->tag;
	memmove(set + 1, set, way * sizeof *set);
	set[0] = line->tag;
	return missed;
}

static void executes(unsigned v, void *data)
{
	struct block *block = data;
	(void)v;
	if (!is_measured)
		return;
	block->executed++;
	*(block->is_kernel ? &kernel : &user) += block->instructions;
	jumps += block->is_kernel && last && last->to != block->from;
	last = block;
	for (uint32_t i = 0; i < block->lines; i++) {
		bool large_missed = misses(&large, &block->line[i]), small_missed = misses(&small, &block->line[i]);
		large.misses += large_missed && block->is_kernel;
		small.misses += small_missed && block->is_kernel;
	}
}

static void begin(void)
{
	for (struct block *block = blocks; block; block = block->next)
		block->executed = 0;
	kernel = user = jumps = large.misses = small.misses = 0;
	last = NULL;
	is_measured = true;
}

static void write_blocks(void)
{
	char path[4096];
	static unsigned written;
	snprintf(path, sizeof path, "%s.%u", name, written++);
	FILE *file = fopen(path, "w");
	if (!file) {
		fprintf(stderr, "plugin: %s cannot be written\n", path);
		exit(1);
	}
	for (struct block *block = blocks; block; block = block->next)
		if (block->is_kernel && block->executed)
			fprintf(file, "%lx %lx %lu\n", block->from, block->to, block->executed);
	fclose(file);
}

static void marks(unsigned v, void *kind)
{
	(void)v;
	switch ((uintptr_t)kind) {
	case BEGIN:
		begin();
		break;
	case END:
	case END_WITH_BLOCKS:
		is_measured = false;
		fprintf(out, "kernel %lu user %lu jumps %lu misses %lu small %lu\n", kernel, user, jumps, large.misses,
			small.misses);
		fflush(out);
		if ((uintptr_t)kind == END_WITH_BLOCKS)
			write_blocks();
	}
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct line lines[MOST_LINES];
	uint32_t used = 0;
	uint64_t to = 0;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn), host = (uint64_t)qemu_plugin_insn_haddr(insn);
		size_t size = qemu_plugin_insn_size(insn);
		for (size_t byte = 0; byte < size; byte += size - 1 ? size - 1 : 1) {
			struct line line = {(host + byte) >> LINE_BITS, (at + byte) >> LINE_BITS & (SETS - 1)};
			if ((!used || lines[used - 1].tag != line.tag) && used < MOST_LINES)
				lines[used++] = line;
		}
		to = at + size;
		int kind = marker(insn);
		if (kind >= BEGIN && kind <= END_WITH_BLOCKS)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marks, 0, (void *)(uintptr_t)kind);
	}
	struct block *block = calloc(1, sizeof *block + used * sizeof *lines);
	if (!block)
		exit(1);
	block->from = qemu_plugin_tb_vaddr(tb);
	block->to = to;
	block->instructions = count;
	block->is_kernel = block->from >> 63;
	block->lines = used;
	memcpy(block->line, lines, used * sizeof *lines);
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executes, 0, block);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	name = argc == 1 && !strncmp(argv[0], "out=", 4) ? strdup(argv[0] + 4) : NULL;
	out = name ? fopen(name, "w") : NULL;
	if (!out) {
		fprintf(stderr, "plugin: out=FILE is missing, or cannot be written\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
