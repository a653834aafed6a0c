/* Conway's Life on a torus; the argument says how many generations. */
#include <stdio.h>
#include <stdlib.h>

#define SIZE 256
static unsigned char world[2][SIZE][SIZE];

static void generation(unsigned char (*from)[SIZE], unsigned char (*to)[SIZE]) {
    for (int y = 0; y < SIZE; y++) {
        int up = (y + SIZE - 1) % SIZE, down = (y + 1) % SIZE;
        for (int x = 0; x < SIZE; x++) {
            int left = (x + SIZE - 1) % SIZE, right = (x + 1) % SIZE;
            int n = from[up][left] + from[up][x] + from[up][right] + from[y][left] + from[y][right]
                  + from[down][left] + from[down][x] + from[down][right];
            to[y][x] = n == 3 || (n == 2 && from[y][x]);
        }
    }
}

int main(int count, char **arguments) {
    int generations = count > 1 ? atoi(arguments[1]) : 200;
    unsigned seed = 1, alive = 0;
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) {
            seed = seed * 1103515245 + 12345;
            world[0][y][x] = seed >> 16 & 1;
        }
    for (int g = 0; g < generations; g++) generation(world[g & 1], world[~g & 1]);
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) alive = alive * 31 + world[generations & 1][y][x];
    printf("%u\n", alive);
    return 0;
}
