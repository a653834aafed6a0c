// Jumps to labels of functions further up: __builtin_setjmp, also from a copy of its buffer, and goto
// out of nested functions, past activations of the same function.
#include <stdio.h>
#include <string.h>
static void *buffer[5];
volatile int size = 40;
__attribute__((noinline)) static void leave(void **from) {
  void *copy[5];
  memcpy(copy, from, sizeof copy);
  __builtin_longjmp(copy, 1);
}
__attribute__((noinline)) static void deeper(int n) {
  char room[n + 8];
  memset(room, n, sizeof room);
  if (n > 0)
    deeper(n - 1);
  else
    leave(buffer);
}
__attribute__((noinline)) static int rounds(int n) {
  volatile int done = 0;
  char *text = __builtin_alloca(size);
  strcpy(text, "kept");
  if (__builtin_setjmp(buffer))
    done++;
  char *more = __builtin_alloca(size * (done + 1));
  memset(more, done, size * (done + 1));
  if (done < n)
    deeper(done + 3);
  return strcmp(text, "kept") ? -1 : done + more[size - 1];
}
__attribute__((noinline)) static int two(int which) {
  void *first[5], *second[5];
  volatile int seen = 0;
  if (__builtin_setjmp(first))
    return 10 + seen;
  if (__builtin_setjmp(second)) {
    seen++;
    leave(first);
  }
  leave(which ? second : first);
  return -1;
}
static int search(int depth, int wanted, void (*found)(int)) {
  __label__ out;
  int at = -1;
  void here(int value) {
    at = value;
    goto out;
  }
  if (depth == wanted)
    found = here;
  if (depth > 0)
    return search(depth - 1, wanted, found) * 10 + depth;
  found(7);
out:
  return at + 100 * depth;
}
static void nowhere(int value) { printf("nowhere %d\n", value); }
int main(void) {
  for (int n = 0; n < 4; n++)
    printf("%d ", rounds(n));
  printf("%d %d\n", two(0), two(1));
  for (int wanted = 0; wanted < 6; wanted++)
    printf("%d ", search(4, wanted, nowhere));
  puts("");
}
