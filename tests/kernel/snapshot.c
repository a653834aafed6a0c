// Writes the running kernel's image, from `_text` to `_end`, to standard output as an ELF core file
// with that one segment. Runs in a guest, as root.
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static unsigned long long symbol(const char *wanted) {
    char line[1024], name[512], kind;
    unsigned long long address;
    FILE *symbols = fopen("/proc/kallsyms", "r");
    if (!symbols) fail("/proc/kallsyms");
    while (fgets(line, sizeof line, symbols))
        if (sscanf(line, "%llx %c %511s", &address, &kind, name) == 3 && !strcmp(name, wanted)) {
            fclose(symbols);
            return address;
        }
    fail(wanted);
    return 0;
}

int main(void) {
    static char buffer[1 << 16];
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    unsigned long long from = symbol("_text"), to = symbol("_end");
    int core = open("/proc/kcore", O_RDONLY);
    if (core < 0 || pread(core, &header, sizeof header, 0) != sizeof header) fail("/proc/kcore");
    for (int i = 0;; i++) {
        if (i == header.e_phnum) fail("no segment has the kernel's text");
        if (pread(core, &segment, sizeof segment, header.e_phoff + i * sizeof segment) !=
            sizeof segment)
            fail("/proc/kcore");
        if (segment.p_type == PT_LOAD && segment.p_vaddr <= from &&
            to - segment.p_vaddr <= segment.p_memsz)
            break;
    }
    unsigned long long at = segment.p_offset + (from - segment.p_vaddr);
    header.e_phoff = sizeof header;
    header.e_phnum = 1;
    header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
    segment.p_offset = 4096;
    segment.p_vaddr = from;
    segment.p_filesz = segment.p_memsz = to - from;
    memcpy(buffer, &header, sizeof header);
    memcpy(buffer + sizeof header, &segment, sizeof segment);
    if (fwrite(buffer, 1, 4096, stdout) != 4096) fail("output");
    while (from < to) {
        size_t part = to - from < sizeof buffer ? to - from : sizeof buffer;
        ssize_t got = pread(core, buffer, part, at);
        if (got <= 0) fail("reading the kernel's memory");
        if (fwrite(buffer, 1, got, stdout) != (size_t)got) fail("output");
        from += got;
        at += got;
    }
    return fflush(stdout) ? 1 : 0;
}
