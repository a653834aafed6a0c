/* The other half of `setjmp`, which throws: only for programs that jump, since not all that run
   WebAssembly know exceptions. */
static struct {
  void *buffer;
  int value;
} jump;

void __wasm_longjmp(void *buffer, int value) {
  jump.buffer = buffer;
  jump.value = value ? value : 1;
  __builtin_wasm_throw(1, &jump);
}
