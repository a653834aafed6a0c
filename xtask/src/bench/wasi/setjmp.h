/* What wasi-libc does not have: clang makes calls of saveSetjmp, testSetjmp and __wasm_longjmp of
   these two (-mllvm -wasm-enable-sjlj). */
typedef struct {
  unsigned id[2];
} jmp_buf[1];

int setjmp(jmp_buf) __attribute__((returns_twice));
void longjmp(jmp_buf, int) __attribute__((noreturn));
