/* Branches over more than 128 KB: GCC makes them jumps through the table of addresses, which it finds by
   a copy of the global pointer on the stack. */
#include <stdio.h>

#define TEN(x) x x x x x x x x x x
#define FAR __asm__ volatile(TEN(TEN(TEN(TEN("nop\n" "nop\n" "nop\n" "nop\n")))));

static int __attribute__((noinline)) steps(int n) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    if (i % 3) {
      FAR
      count += printf("%d\n", i);
    }
    if (i % 2)
      count++;
    else {
      FAR
      printf("even %d\n", count);
    }
  }
  return count;
}

int main(int count, char **arguments) {
  int large[count == 7 ? 20000 : 1];
  large[0] = steps(6 + count);
  printf("%d\n", large[0]);
  return 0;
}
