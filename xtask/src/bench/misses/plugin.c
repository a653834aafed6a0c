/* Modelled caches and TLBs for a guest with one vCPU (QEMU's plugin interface 1, 7.2 and newer), of all that it
 * executes between two marks of a program in it:
 *
 *   0x64  a measurement begins
 *   0x65  it ends: one line is added to the file `out=`
 *
 * Caches of instructions and of data have 32 KiB in eight ways and lines of 64 bytes, by address in the machine's
 * memory. TLBs have 64 entries in four ways; a program's pages have 4 KiB, the kernel's 2 MiB. The least recently used
 * entry leaves. What they miss is looked for in a second level of 512 KiB in eight ways, for both. A write to CR3 forgets
 * all pages of programs, as it does on a processor without tags, which the guest's is. There is no prefetching, and what
 * page walks read is not counted. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

enum { BEGIN = 0x64, END };
enum { READS_AND_WRITES = 3 };
enum { LINE_BITS = 6, WAYS_MOST = 8, SETS_MOST = 1024, MOST = 130 };

#define NOTHING (~0ul)
#define IS_KERNELS(at) ((at) >> 63)

struct cache {
	unsigned sets, ways;
	uint64_t entries[SETS_MOST][WAYS_MOST];
	uint64_t misses;
};

static struct cache l1i = {.sets = 64, .ways = 8}, l1d = {.sets = 64, .ways = 8};
static struct cache l2 = {.sets = 1024, .ways = 8};
static struct cache itlb = {.sets = 16, .ways = 4}, dtlb = {.sets = 16, .ways = 4};
static uint64_t instructions, switches;
static bool is_measured;
static FILE *out;

/* A translated block: its lines in the machine's memory, and its pages. */
struct block {
	uint32_t instructions, lines, pages;
	uint64_t page[2];
	uint64_t line[];
};

/* Whether it was there. */
static bool touch(struct cache *cache, uint64_t entry, unsigned set)
{
	uint64_t *ways = cache->entries[set % cache->sets];
	unsigned way = 0;
	while (way < cache->ways - 1 && ways[way] != entry)
		way++;
	bool is_there = ways[way] == entry;
	cache->misses += !is_there;
	memmove(ways + 1, ways, way * sizeof *ways);
	ways[0] = entry;
	return is_there;
}

/* The page of an address, with the bit that says whose it is. */
static uint64_t page_of(uint64_t at) { return IS_KERNELS(at) ? at >> 21 | 1ul << 63 : at >> 12; }

static void forget_programs(struct cache *tlb)
{
	for (unsigned set = 0; set < tlb->sets; set++)
		for (unsigned way = 0; way < tlb->ways; way++)
			if (!IS_KERNELS(tlb->entries[set][way]))
				tlb->entries[set][way] = NOTHING >> 1;
}

static void executes(unsigned v, void *data)
{
	const struct block *block = data;
	(void)v;
	if (!is_measured)
		return;
	instructions += block->instructions;
	for (uint32_t i = 0; i < block->pages; i++)
		touch(&itlb, block->page[i], block->page[i]);
	for (uint32_t i = 0; i < block->lines; i++)
		/* Lines of code are known by another address than those of data. */
		if (!touch(&l1i, block->line[i], block->line[i]))
			touch(&l2, block->line[i] | 1ul << 63, block->line[i]);
}

static void accesses(unsigned v, qemu_plugin_meminfo_t how, uint64_t at, void *data)
{
	(void)v;
	(void)data;
	if (!is_measured)
		return;
	touch(&dtlb, page_of(at), page_of(at));
	struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(how, at);
	uint64_t line = (where ? qemu_plugin_hwaddr_phys_addr(where) : at) >> LINE_BITS;
	if (!touch(&l1d, line, line))
		touch(&l2, line, line);
}

static void switches_space(unsigned v, void *data)
{
	(void)v;
	(void)data;
	forget_programs(&itlb);
	forget_programs(&dtlb);
	switches += is_measured;
}

static void marks(unsigned v, void *kind)
{
	(void)v;
	is_measured = (uintptr_t)kind == BEGIN;
	if (is_measured) {
		instructions = switches = l1i.misses = l1d.misses = l2.misses = itlb.misses = dtlb.misses = 0;
		return;
	}
	fprintf(out, "instructions %lu l1i %lu l1d %lu l2 %lu itlb %lu dtlb %lu switches %lu\n", instructions, l1i.misses, l1d.misses,
		l2.misses, itlb.misses, dtlb.misses, switches);
	fflush(out);
}

/* mov to CR3: 0f 22 with 3 as the register that is written; perhaps behind a REX prefix. */
static bool writes_cr3(const struct qemu_plugin_insn *insn)
{
	const unsigned char *d = qemu_plugin_insn_data(insn);
	size_t size = qemu_plugin_insn_size(insn), at = size == 4 && (d[0] & 0xf0) == 0x40;
	return size == at + 3 && d[at] == 0x0f && d[at + 1] == 0x22 && (d[at + 2] >> 3 & 7) == 3;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	size_t count = qemu_plugin_tb_n_insns(tb);
	uint64_t lines[MOST];
	struct block found = {.instructions = count};
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn), host = (uint64_t)qemu_plugin_insn_haddr(insn);
		size_t last = qemu_plugin_insn_size(insn) - 1;
		for (size_t byte = 0;; byte = last) {
			uint64_t line = (host + byte) >> LINE_BITS, page = page_of(at + byte);
			if ((!found.lines || lines[found.lines - 1] != line) && found.lines < MOST)
				lines[found.lines++] = line;
			if ((!found.pages || found.page[found.pages - 1] != page) && found.pages < 2)
				found.page[found.pages++] = page;
			if (byte == last)
				break;
		}
		int kind = marker(insn);
		if (kind == BEGIN || kind == END)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marks, 0, (void *)(uintptr_t)kind);
		if (writes_cr3(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, switches_space, 0, NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, accesses, 0, READS_AND_WRITES, NULL);
	}
	struct block *block = malloc(sizeof *block + found.lines * sizeof *lines);
	if (!block)
		exit(1);
	*block = found;
	memcpy(block->line, lines, found.lines * sizeof *lines);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executes, 0, block);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	out = argc == 1 && !strncmp(argv[0], "out=", 4) ? fopen(argv[0] + 4, "w") : NULL;
	if (!out) {
		fprintf(stderr, "plugin: out=FILE is missing, or cannot be written\n");
		return -1;
	}
	memset(l1i.entries, -1, sizeof l1i.entries);
	memset(l1d.entries, -1, sizeof l1d.entries);
	memset(l2.entries, -1, sizeof l2.entries);
	memset(itlb.entries, -1, sizeof itlb.entries);
	memset(dtlb.entries, -1, sizeof dtlb.entries);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
