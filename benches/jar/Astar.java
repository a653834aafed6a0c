import java.util.Arrays;

/**
 * What astar.c does, as a Java programmer writes it. For costs of other types than int, the benchmark replaces the type of
 * what is one, and casts of sums to it.
 */
public final class Astar {
    private static final int SIZE = 200;
    private static final int CELLS = SIZE * SIZE;
    private static final int FAR = 0x7f7f7f7f;

    private final int[] cost = new int[CELLS];
    private final int[] best = new int[CELLS];
    private final int[] heap = new int[CELLS * 4];
    private final int[] key = new int[CELLS * 4];
    private int length;

    private void push(int cell, int value) {
        int at = length++;
        while (at > 0 && key[(at - 1) / 2] > value) {
            heap[at] = heap[(at - 1) / 2];
            key[at] = key[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        heap[at] = cell;
        key[at] = value;
    }

    private int pop() {
        int top = heap[0];
        int cell = heap[--length];
        int value = key[length];
        int at = 0;
        while (true) {
            int child = 2 * at + 1;
            if (child >= length) {
                break;
            }
            if (child + 1 < length && key[child + 1] < key[child]) {
                child++;
            }
            if (key[child] >= value) {
                break;
            }
            heap[at] = heap[child];
            key[at] = key[child];
            at = child;
        }
        heap[at] = cell;
        key[at] = value;
        return top;
    }

    private static int distance(int cell) {
        return SIZE - 1 - cell % SIZE + SIZE - 1 - cell / SIZE;
    }

    private int search() {
        Arrays.fill(best, FAR);
        length = 0;
        best[0] = 0;
        push(0, (int) (distance(0)));
        int[] next = new int[4];
        while (length > 0) {
            int cell = pop();
            if (cell == CELLS - 1) {
                return (int) best[cell];
            }
            int x = cell % SIZE;
            next[0] = x > 0 ? cell - 1 : -1;
            next[1] = x < SIZE - 1 ? cell + 1 : -1;
            next[2] = cell - SIZE;
            next[3] = cell + SIZE;
            for (int to : next) {
                if (to < 0 || to >= CELLS) {
                    continue;
                }
                int value = (int) (best[cell] + cost[to]);
                if (value < best[to]) {
                    best[to] = value;
                    push(to, (int) (value + distance(to)));
                }
            }
        }
        return -1;
    }

    public static String run(String[] arguments) {
        int times = Integer.parseInt(arguments[0]);
        Astar astar = new Astar();
        int seed = 7;
        int sum = 0;
        for (int t = 0; t < times; t++) {
            for (int i = 0; i < CELLS; i++) {
                seed = seed * 1103515245 + 12345;
                astar.cost[i] = (int) (1 + (seed >>> 16) % 9);
            }
            sum = sum * 31 + astar.search();
        }
        return Integer.toUnsignedString(sum) + "\n";
    }
}
