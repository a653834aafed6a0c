/* What the simulated core does without an end: sorting, checksums, matrices, divisions. */

typedef unsigned long u64;
typedef unsigned char u8;

#define NUMBERS 512
#define SIDE 12

static volatile u64 *const out = (u64 *)0x10001000UL;
static u64 seed = 88172645463325252UL;
static u64 numbers[NUMBERS];
static u8 text[4 * NUMBERS];
static double left[SIDE][SIDE], right[SIDE][SIDE], product[SIDE][SIDE];

static u64 next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static void sort(u64 *all, int count) {
  if (count < 2) return;
  u64 pivot = all[count / 2];
  int i = 0, j = count - 1;
  for (;; i++, j--) {
    while (all[i] < pivot) i++;
    while (all[j] > pivot) j--;
    if (i >= j) break;
    u64 other = all[i];
    all[i] = all[j];
    all[j] = other;
  }
  sort(all, i);
  sort(all + i, count - i);
}

static unsigned checksum(const u8 *bytes, int count) {
  unsigned sum = ~0u;
  while (count--) {
    sum ^= *bytes++;
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (0xedb88320u & -(sum & 1));
  }
  return ~sum;
}

static void multiply(void) {
  for (int i = 0; i < SIDE; i++)
    for (int j = 0; j < SIDE; j++) {
      double sum = 0;
      for (int k = 0; k < SIDE; k++) sum += left[i][k] * right[k][j];
      product[i][j] = sum / 3 + 1;
    }
}

int main(void) {
  for (;;) {
    for (int i = 0; i < NUMBERS; i++) numbers[i] = next();
    sort(numbers, NUMBERS);
    for (int i = 0; i < 4 * NUMBERS; i++) text[i] = numbers[i % NUMBERS] >> i % 8;
    u64 sum = checksum(text, sizeof text);
    for (int i = 0; i < SIDE * SIDE; i++) {
      left[i / SIDE][i % SIDE] = numbers[i];
      right[i / SIDE][i % SIDE] = i;
    }
    multiply();
    for (int i = 0; i + 1 < NUMBERS; i++) sum += numbers[i] / (numbers[i + 1] % 1000 + 1);
    *out = sum ^ (u64)product[2][3];
  }
}
