/*
 * What a C or C++ library offers to Java, and what it calls there.
 *
 *     #include <fettle/java.h>
 *
 *     FETTLE_IMPORT(int, "org.acme.Progress", report, int done)  // a public static Java method
 *
 *     int sum(const int *numbers, int count) { ... report(count); ... }
 *     FETTLE_EXPORT(sum)
 *
 *     FETTLE_LIBRARY                                            // once, in one file
 *
 * Link it as a static program: mipsel-linux-gnu-gcc -O2 -static sum.c -o sum.elf. Java then sees
 * `interface Sum { int sum(int[] numbers, int count); }` by io.github.fettle.jvm.Library.
 */
#ifndef FETTLE_JAVA_H
#define FETTLE_JAVA_H

#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
#define FETTLE_C extern "C"
#else
#define FETTLE_C extern
long syscall(long number, ...); /* which strict C hides; C++ always has it */
#endif

/* One exported function. The runtime reads the table of them by its ends. */
struct fettle_export {
    const char *name;
    void (*function)(void);
};

/* Offers a function to Java under its C name. In C++ it should be extern "C". */
#define FETTLE_EXPORT(function_)                                                                   \
    static const struct fettle_export fettle_export_##function_                                    \
        __attribute__((used, section("fettle_exports"))) = {#function_,                            \
                                                            (void (*)(void))function_};

/*
 * The program's main: hands the table to the runtime, and leaves without running destructors, so
 * that the library lives on. Java's side also needs malloc and free, for strings and arrays.
 */
#define FETTLE_LIBRARY                                                                             \
    FETTLE_EXPORT(malloc)                                                                          \
    FETTLE_EXPORT(free)                                                                            \
    FETTLE_C const struct fettle_export __start_fettle_exports[], __stop_fettle_exports[];         \
    int main(void) {                                                                               \
        syscall(5500, __start_fettle_exports, __stop_fettle_exports);                              \
        _exit(0);                                                                                  \
    }

/*
 * Declares a function that is a public static method of a Java class, which the embedding program
 * must have granted (Options.imports). Arguments and result: integers, long long, const char * as
 * String, and int handles of objects. It is a system call whose number is the address of the names.
 */
#define FETTLE_IMPORT(type, class_, name_, ...)                                                    \
    FETTLE_C type name_(__VA_ARGS__);                                                              \
    FETTLE_STUB(class_, name_, "0", "", "")

/*
 * The same for functions that take or return float or double. The callee's argument area carries the
 * registers: the runtime sees only the integer ones.
 */
#define FETTLE_IMPORT_FP(type, class_, name_, ...)                                                 \
    FETTLE_C type name_(__VA_ARGS__);                                                              \
    FETTLE_STUB(class_, name_, "1", "sdc1 $f12, 0($29)\n sdc1 $f14, 8($29)\n", "ldc1 $f0, 0($29)\n")

#define FETTLE_STUB(class_, name_, floats, before, after)                                          \
    __asm__(".pushsection .data\n"                                                                 \
            ".balign 4\n"                                                                          \
            "fettle_import_" #name_ ": .word 1f, 2f, " floats "\n"                                 \
            "1: .asciz \"" class_ "\"\n"                                                           \
            "2: .asciz \"" #name_ "\"\n"                                                           \
            ".popsection\n"                                                                        \
            ".pushsection .text\n"                                                                 \
            ".balign 4\n"                                                                          \
            ".weak " #name_ "\n"                                                                   \
            ".type " #name_ ", @function\n"                                                        \
            ".ent " #name_ "\n" #name_ ":\n"                                                       \
            ".set push\n"                                                                          \
            ".set noreorder\n"                                                                     \
            "lui $2, %hi(fettle_import_" #name_ ")\n"                                              \
            "addiu $2, $2, %lo(fettle_import_" #name_ ")\n" before                                 \
            "syscall\n" after                                                                      \
            "jr $31\n"                                                                             \
            "nop\n"                                                                                \
            ".set pop\n"                                                                           \
            ".end " #name_ "\n"                                                                    \
            ".size " #name_ ", . - " #name_ "\n"                                                   \
            ".popsection\n");

#endif
