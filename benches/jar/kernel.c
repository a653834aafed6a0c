/* What CoreMark has: a linked list that is sorted and searched, products of matrices, a machine of
   states that reads text, and a checksum over all. The argument says how often. */
#include <stdio.h>
#include <stdlib.h>

#define NODES 200
#define N 24

typedef struct node { struct node *next; short key, value; } node;
static node nodes[NODES];
static short a[N][N], b[N][N];
static int c[N][N];
static const char text[] = "5012,1.5,-7e3,+12.25e-2,0x3f,abc,99999,.5,7.,1e,-,+8,33.3.3,1234567,";

static unsigned short crc(unsigned value, unsigned short sum) {
    for (int i = 0; i < 16; i++) {
        int bit = (sum ^ value) & 1;
        sum >>= 1;
        if (bit) sum ^= 0xa001;
        value >>= 1;
    }
    return sum;
}

static int by_key(const node *x, const node *y) { return x->key - y->key; }
static int by_value(const node *x, const node *y) { return x->value - y->value; }

static node *sort(node *list, int (*compare)(const node *, const node *)) {
    for (int size = 1;; size *= 2) {
        node *p = list, *tail = NULL;
        int merges = 0;
        list = NULL;
        while (p) {
            node *q = p;
            int left = 0, right = size;
            merges++;
            for (int i = 0; i < size && q; i++, left++) q = q->next;
            while (left > 0 || (right > 0 && q)) {
                node *taken;
                if (left == 0 || (right > 0 && q && compare(p, q) > 0)) { taken = q; q = q->next; right--; }
                else { taken = p; p = p->next; left--; }
                if (tail) tail->next = taken; else list = taken;
                tail = taken;
            }
            p = q;
        }
        tail->next = NULL;
        if (merges <= 1) return list;
    }
}

static unsigned lists(unsigned seed, unsigned short sum) {
    for (int i = 0; i < NODES; i++) {
        seed = seed * 1103515245 + 12345;
        nodes[i] = (node){i + 1 < NODES ? &nodes[i + 1] : NULL, i, seed >> 16 & 0xff};
    }
    node *list = sort(nodes, by_value);
    for (int wanted = 0; wanted < 40; wanted++) {
        node *found = list;
        while (found && found->value != wanted) found = found->next;
        sum = crc(found ? found->key : 0xffff, sum);
    }
    list = sort(list, by_key);
    return crc(list->value, sum);
}

static unsigned matrices(int seed, unsigned short sum) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) { a[i][j] = (i * j + seed) & 127; b[i][j] = (i + j * seed) & 63; }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            int s = 0;
            for (int k = 0; k < N; k++) s += a[i][k] * b[k][j];
            c[i][j] = s >> 2;
        }
    for (int i = 0; i < N; i++) sum = crc(c[i][i * 7 % N], sum);
    return sum;
}

enum state { START, SIGN, INTEGER, FRACTION, EXPONENT, DIGITS, INVALID, STATES };

static unsigned states(unsigned short sum) {
    int ends[STATES] = {0};
    enum state state = START;
    for (const char *p = text; *p; p++) {
        int digit = *p >= '0' && *p <= '9';
        if (*p == ',') { ends[state]++; state = START; continue; }
        switch (state) {
        case START: state = digit ? INTEGER : *p == '+' || *p == '-' ? SIGN : *p == '.' ? FRACTION : INVALID; break;
        case SIGN: state = digit ? INTEGER : *p == '.' ? FRACTION : INVALID; break;
        case INTEGER: state = digit ? INTEGER : *p == '.' ? FRACTION : *p == 'e' ? EXPONENT : INVALID; break;
        case FRACTION: state = digit ? FRACTION : *p == 'e' ? EXPONENT : INVALID; break;
        case EXPONENT: state = digit || *p == '+' || *p == '-' ? DIGITS : INVALID; break;
        case DIGITS: state = digit ? DIGITS : INVALID; break;
        default: break;
        }
    }
    for (int i = 0; i < STATES; i++) sum = crc(ends[i], sum);
    return sum;
}

int main(int count, char **arguments) {
    int times = count > 1 ? atoi(arguments[1]) : 2000;
    unsigned short sum = 0;
    for (int t = 0; t < times; t++) sum = states(matrices(t, lists(t * 17 + 3, sum)));
    printf("%04x\n", sum);
    return 0;
}
