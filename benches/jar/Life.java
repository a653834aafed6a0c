/** What life.c does, as a Java programmer writes it. */
public final class Life {
    private static final int SIZE = 256;

    private static void generation(byte[][] from, byte[][] to) {
        for (int y = 0; y < SIZE; y++) {
            byte[] up = from[(y + SIZE - 1) % SIZE], own = from[y], down = from[(y + 1) % SIZE];
            for (int x = 0; x < SIZE; x++) {
                int left = (x + SIZE - 1) % SIZE, right = (x + 1) % SIZE;
                int n = up[left] + up[x] + up[right] + own[left] + own[right]
                        + down[left] + down[x] + down[right];
                to[y][x] = (byte) (n == 3 || n == 2 && own[x] != 0 ? 1 : 0);
            }
        }
    }

    public static String run(String[] arguments) {
        int generations = Integer.parseInt(arguments[0]);
        byte[][][] world = new byte[2][SIZE][SIZE];
        int seed = 1;
        for (int y = 0; y < SIZE; y++) {
            for (int x = 0; x < SIZE; x++) {
                seed = seed * 1103515245 + 12345;
                world[0][y][x] = (byte) (seed >>> 16 & 1);
            }
        }
        for (int g = 0; g < generations; g++) {
            generation(world[g & 1], world[~g & 1]);
        }
        int alive = 0;
        for (byte[] row : world[generations & 1]) {
            for (byte cell : row) {
                alive = alive * 31 + cell;
            }
        }
        return Integer.toUnsignedString(alive) + "\n";
    }
}
