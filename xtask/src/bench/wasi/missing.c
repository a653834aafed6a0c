/* What programs refer to and wasi-libc does not have. Files cannot get modes and owners, and there are
   no processes: these fail, as WASI would have them. */
#include <errno.h>
#include <stdlib.h>

static int refused(void) {
  errno = ENOSYS;
  return -1;
}

int fchmod(int file, unsigned mode) { return refused(); }
int fchown(int file, unsigned user, unsigned group) { return refused(); }
int system(const char *command) { return command ? refused() : 0; }
char *tmpnam(char *name) { return 0; }
void *tmpfile(void) {
  refused();
  return 0;
}

/* `setjmp`, as clang wants it: a function that calls it has a table of the buffers that it set, which
   lead to what comes behind each call. Two results: the second is the table's new size. */
struct set {
  unsigned id;
  int label;
};

static int second_result;

int getTempRet0(void) { return second_result; }
void setTempRet0(int value) { second_result = value; }

struct set *saveSetjmp(unsigned *buffer, int label, struct set *table, unsigned size) {
  static unsigned last;
  unsigned used = 0;
  buffer[0] = ++last;
  while (table[used].id) used++;
  if (used + 1 >= size) {
    size *= 2;
    table = realloc(table, size * sizeof *table);
    if (!table) abort();
  }
  table[used] = (struct set){last, label};
  table[used + 1].id = 0;
  second_result = size;
  return table;
}

int testSetjmp(unsigned id, struct set *table, unsigned size) {
  for (unsigned i = 0; i < size && table[i].id; i++)
    if (table[i].id == id) return table[i].label;
  return 0;
}

/* Where there are no terminals, everything that is no file is one to wasi-libc. */
int isatty(int file) { return 0; }
