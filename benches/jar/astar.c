/* A* from corner to corner of a map with random costs, by a heap; the argument says how often. Costs are of the type
   NUMBER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 200
#define CELLS (SIZE * SIZE)
#ifndef NUMBER
#define NUMBER int
#endif
typedef NUMBER number;

static number cost[CELLS], best[CELLS], key[CELLS * 4];
static int heap[CELLS * 4], length;

static void push(int cell, number value) {
    int at = length++;
    while (at > 0 && key[(at - 1) / 2] > value) {
        heap[at] = heap[(at - 1) / 2];
        key[at] = key[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = cell;
    key[at] = value;
}

static int pop(void) {
    int top = heap[0], cell = heap[--length], at = 0;
    number value = key[length];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= length) break;
        if (child + 1 < length && key[child + 1] < key[child]) child++;
        if (key[child] >= value) break;
        heap[at] = heap[child];
        key[at] = key[child];
        at = child;
    }
    heap[at] = cell;
    key[at] = value;
    return top;
}

static int distance(int cell) { return SIZE - 1 - cell % SIZE + SIZE - 1 - cell / SIZE; }

static int search(void) {
    memset(best, 0x7f, sizeof best);
    length = 0;
    best[0] = 0;
    push(0, distance(0));
    while (length > 0) {
        int cell = pop();
        if (cell == CELLS - 1) return best[cell];
        int x = cell % SIZE;
        int next[4] = {x > 0 ? cell - 1 : -1, x < SIZE - 1 ? cell + 1 : -1, cell - SIZE, cell + SIZE};
        for (int i = 0; i < 4; i++) {
            int to = next[i];
            if (to < 0 || to >= CELLS) continue;
            number value = best[cell] + cost[to];
            if (value < best[to]) {
                best[to] = value;
                push(to, value + distance(to));
            }
        }
    }
    return -1;
}

int main(int count, char **arguments) {
    int times = count > 1 ? atoi(arguments[1]) : 10;
    unsigned seed = 7, sum = 0;
    for (int t = 0; t < times; t++) {
        for (int i = 0; i < CELLS; i++) {
            seed = seed * 1103515245 + 12345;
            cost[i] = 1 + (seed >> 16) % 9;
        }
        sum = sum * 31 + search();
    }
    printf("%u\n", sum);
    return 0;
}
