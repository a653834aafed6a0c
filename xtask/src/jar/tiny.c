/* As much of a C library as most of gcc's tests need: a program with it is translated and started in
   a twentieth of the time. One that needs more does not link, and is linked with the real library. */
typedef __SIZE_TYPE__ size_t;

__asm__(".text\n"
        ".globl __start\n"
        ".ent __start\n"
        "__start:\n"
        ".set push\n"
        ".set noreorder\n"
        "lw $4, 0($29)\n"
        "addiu $5, $29, 4\n"
        "li $8, -16\n"
        "and $29, $29, $8\n"
        "addiu $29, $29, -32\n"
        "lui $25, %hi(tiny_start)\n"
        "addiu $25, $25, %lo(tiny_start)\n"
        "jalr $25\n"
        "nop\n"
        ".set pop\n"
        ".end __start\n");

extern void (*__init_array_start[])(int, char **), (*__init_array_end[])(int, char **);
int main(int, char **);

__attribute__((noreturn)) void _exit(int status) {
    register long number __asm__("$2") = 4246; /* exit_group */
    register long argument __asm__("$4") = status;
    for (;;)
        __asm__ volatile("syscall" : : "r"(number), "r"(argument) : "$7", "memory");
}

__attribute__((noreturn)) void exit(int status) {
    _exit(status);
}

__attribute__((noreturn)) void abort(void) {
    _exit(134);
}

__attribute__((used)) static void tiny_start(int argc, char **argv) {
    for (void (**each)(int, char **) = __init_array_start; each < __init_array_end; each++)
        (*each)(argc, argv);
    exit(main(argc, argv));
}

void *memcpy(void *to, const void *from, size_t count) {
    char *t = to;
    const char *f = from;
    while (count--)
        *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t count) {
    char *t = to;
    const char *f = from;
    if (t <= f)
        return memcpy(to, from, count);
    while (count--)
        t[count] = f[count];
    return to;
}

void *memset(void *to, int value, size_t count) {
    char *t = to;
    while (count--)
        *t++ = value;
    return to;
}

int memcmp(const void *a, const void *b, size_t count) {
    const unsigned char *x = a, *y = b;
    for (; count--; x++, y++)
        if (*x != *y)
            return *x - *y;
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

int strcmp(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

int strncmp(const char *a, const char *b, size_t count) {
    for (; count; count--, a++, b++)
        if (*a != *b || !*a)
            return (unsigned char)*a - (unsigned char)*b;
    return 0;
}

char *strcpy(char *to, const char *from) {
    char *t = to;
    while ((*t++ = *from++))
        ;
    return to;
}

char *strchr(const char *text, int wanted) {
    for (;; text++) {
        if (*text == (char)wanted)
            return (char *)text;
        if (!*text)
            return 0;
    }
}

static char heap[4 << 20] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t size) {
    size_t at = used;
    if (size > sizeof heap - at)
        return 0;
    used = (at + size + 15) & ~(size_t)15;
    return heap + at;
}

void *calloc(size_t count, size_t size) {
    return malloc(count * size); /* it is used once and zero */
}

void free(void *pointer) {
    (void)pointer;
}
