/* clang's coverage counters ask for this at start; the counters themselves are increments in the
   code of the program, put there by the compiler after all inlining. */
void __sanitizer_cov_8bit_counters_init(char *start, char *stop) {
    (void)start;
    (void)stop;
}
