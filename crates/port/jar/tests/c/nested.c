// Functions within functions, called by address: the compiler makes trampolines
// on the stack.
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int apply(int (*f)(int, double), int n) {
  int t = 0;
  for (int i = 0; i < n; i++)
    t += f(i, i / 2.0);
  return t;
}
__attribute__((noinline)) int outer(int base, int n) {
  int calls = 0;
  int add(int i, double d) {
    calls++;
    return base + i + (int)d;
  }
  int t = apply(add, n);
  return t * 100 + calls;
}
int main(void) {
  int order[6] = {3, 1, 2, 6, 5, 4}, weight = 1;
  int compare(const void *a, const void *b) {
    weight++;
    return *(const int *)b - *(const int *)a;
  }
  printf("%d %d\n", outer(5, 4), outer(7, 3));
  qsort(order, 6, sizeof *order, compare);
  printf("%d %d %d\n", order[0], order[5], weight > 3);
}
