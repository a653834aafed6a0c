// Reads the running kernel's memory through /proc/kcore: `peek sum FROM TO` prints a checksum of what lies
// between two symbols, `peek at SYMBOL BYTES` the bytes themselves, `peek address SYMBOL` where it is.
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int core;

static void fail(const char *what) {
    fprintf(stderr, "peek: %s\n", what);
    exit(1);
}

static unsigned long symbol(const char *wanted) {
    char line[1024], name[512], kind;
    unsigned long address;
    FILE *symbols = fopen("/proc/kallsyms", "r");
    if (!symbols) fail("no /proc/kallsyms");
    // A module's symbols come later.
    while (fgets(line, sizeof line, symbols))
        if (sscanf(line, "%lx %c %511s", &address, &kind, name) == 3 && !strcmp(name, wanted)) {
            fclose(symbols);
            return address;
        }
    fail(wanted);
    return 0;
}

static void fetch(unsigned long at, unsigned char *into, size_t bytes) {
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    if (pread(core, &header, sizeof header, 0) != sizeof header) fail("no /proc/kcore");
    for (int i = 0; i < header.e_phnum; i++) {
        if (pread(core, &segment, sizeof segment, header.e_phoff + i * sizeof segment) != sizeof segment)
            fail("no headers");
        if (segment.p_type != PT_LOAD || at < segment.p_vaddr || at + bytes > segment.p_vaddr + segment.p_memsz)
            continue;
        if (pread(core, into, bytes, segment.p_offset + (at - segment.p_vaddr)) != (ssize_t)bytes)
            fail("memory that cannot be read");
        return;
    }
    fail("no such memory");
}

int main(int count, char **arguments) {
    static unsigned char buffer[1 << 16];
    core = open("/proc/kcore", O_RDONLY);
    if (count == 3 && !strcmp(arguments[1], "address")) {
        printf("0x%lx\n", symbol(arguments[2]));
    } else if (count == 4 && !strcmp(arguments[1], "at")) {
        size_t bytes = strtoul(arguments[3], 0, 0);
        if (bytes > sizeof buffer) fail("too many bytes");
        fetch(symbol(arguments[2]), buffer, bytes);
        for (size_t i = 0; i < bytes; i++) printf("%02x", buffer[i]);
        puts("");
    } else if (count == 4 && !strcmp(arguments[1], "sum")) {
        unsigned long from = symbol(arguments[2]), to = symbol(arguments[3]), sum = 0;
        while (from < to) {
            size_t part = to - from < sizeof buffer ? to - from : sizeof buffer;
            fetch(from, buffer, part);
            for (size_t i = 0; i < part; i++) sum = (sum ^ buffer[i]) * 0x100000001b3;
            from += part;
        }
        printf("%016lx\n", sum);
    } else {
        fail("sum FROM TO, at SYMBOL BYTES, or address SYMBOL");
    }
    return 0;
}
