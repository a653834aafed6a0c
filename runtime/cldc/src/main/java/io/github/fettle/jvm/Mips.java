package io.github.fettle.jvm;

/** What single MIPS instructions do that Java has no operation for. */
public final class Mips extends Instructions {
    private Mips() {}

    private static final long NAN = 0x7ff7ffffffffffffL;
    private static final int NAN_FLOAT = 0x7fbfffff;

    // Words that are not aligned, in two halves.

    public static int lwl(int[] memory, int address, int old) {
        return left(memory[address >>> 2], (~address & 3) << 3, old);
    }

    public static int lwr(int[] memory, int address, int old) {
        return right(memory[address >>> 2], (address & 3) << 3, old);
    }

    public static int lwlBig(int[] memory, int address, int old) {
        return left(memory[address >>> 2], (address & 3) << 3, old);
    }

    public static int lwrBig(int[] memory, int address, int old) {
        return right(memory[address >>> 2], (~address & 3) << 3, old);
    }

    private static int left(int word, int shift, int old) {
        return shift == 0 ? word : word << shift | old & (1 << shift) - 1;
    }

    private static int right(int word, int shift, int old) {
        return shift == 0 ? word : word >>> shift | old & -1 << 32 - shift;
    }

    public static void swl(int[] memory, int address, int value) {
        storeLeft(memory, address, (~address & 3) << 3, value);
    }

    public static void swr(int[] memory, int address, int value) {
        storeRight(memory, address, (address & 3) << 3, value);
    }

    public static void swlBig(int[] memory, int address, int value) {
        storeLeft(memory, address, (address & 3) << 3, value);
    }

    public static void swrBig(int[] memory, int address, int value) {
        storeRight(memory, address, (~address & 3) << 3, value);
    }

    private static void storeLeft(int[] memory, int address, int shift, int value) {
        int word = memory[address >>> 2];
        memory[address >>> 2] = shift == 0 ? value : word & ~(-1 >>> shift) | value >>> shift;
    }

    private static void storeRight(int[] memory, int address, int shift, int value) {
        int word = memory[address >>> 2];
        memory[address >>> 2] = shift == 0 ? value : word & (1 << shift) - 1 | value << shift;
    }

    // A program has one thread: what was linked is still there.

    public static int loadLinked(int[] memory, int address) {
        return memory[address >>> 2];
    }

    public static int loadLinkedBig(int[] memory, int address) {
        return memory[address >>> 2];
    }

    public static int storeConditional(int[] memory, int address, int seen, int value) {
        if (memory[address >>> 2] != seen) {
            return 0;
        }
        memory[address >>> 2] = value;
        return 1;
    }

    public static int storeConditionalBig(int[] memory, int address, int seen, int value) {
        return storeConditional(memory, address, seen, value);
    }

    // Floating point.

    public static long bits(double value) {
        return value == value ? Double.doubleToLongBits(value) : NAN;
    }

    public static int bits(float value) {
        return value == value ? Float.floatToIntBits(value) : NAN_FLOAT;
    }

    public static double nan(double value) {
        return value;
    }

    public static float nan(float value) {
        return value;
    }

    static double nearest(double value) {
        double below = Math.floor(value);
        double over = value - below;
        if (over < 0.5 || over == 0.5 && below % 2 == 0) {
            return below;
        }
        // What has no fraction, and what is no number, is its own result.
        return over >= 0.5 ? below + 1 : value;
    }

    /** Hardware registers other than the thread pointer. */
    public static int hardware(GuestThread thread, int register) {
        switch (register) {
            case 1:
                return 32;
            case 2:
                return (int) System.currentTimeMillis() * 1000;
            case 3:
                return 1;
            default:
                return 0;
        }
    }
}
