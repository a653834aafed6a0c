package io.github.fettle.jvm;

/** What single MIPS instructions do that Java has no operation for. */
public final class Mips {
    private Mips() {}

    /** What conversions of values that are no integers of the format give. */
    private static final int INVALID_WORD = 0x7fffffff;

    private static final long INVALID_LONG = 0x7fffffffffffffffL;

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

    /** Whether less (4), equal (2) or unordered (1) is in the mask and holds. */
    public static int compare(double a, double b, int mask) {
        int is = a < b ? 4 : a == b ? 2 : a > b ? 0 : 1;
        return (is & mask) != 0 ? 1 : 0;
    }

    /** Whether less (4), equal (2) or unordered (1) is in the mask and holds. */
    public static int compare(float a, float b, int mask) {
        return compare((double) a, (double) b, mask);
    }

    public static int truncateWord(double value) {
        int word = (int) value;
        // Java gives 0 for what is no number, and the nearest integer for what is too large.
        if (word == Integer.MIN_VALUE && value <= -2147483649.0 || value != value) {
            return INVALID_WORD;
        }
        return word;
    }

    public static int truncateWord(float value) {
        return truncateWord((double) value);
    }

    public static int roundWord(int mode, double value) {
        return truncateWord(integral(mode, value));
    }

    public static int roundWord(int mode, float value) {
        return truncateWord(integral(mode, value));
    }

    public static long roundLong(int mode, double value) {
        double rounded = integral(mode, value);
        if (rounded != rounded || rounded < -9223372036854775808.0) {
            return INVALID_LONG;
        }
        return (long) rounded;
    }

    public static long roundLong(int mode, float value) {
        return roundLong(mode, (double) value);
    }

    /** Rounds to an integer: 0 to the nearest, 1 towards zero, 2 up, 3 down. */
    private static double integral(int mode, double value) {
        switch (mode & 3) {
            case 0:
                return nearest(value);
            case 1:
                return value < 0 ? Math.ceil(value) : Math.floor(value);
            case 2:
                return Math.ceil(value);
            default:
                return Math.floor(value);
        }
    }

    private static double nearest(double value) {
        double below = Math.floor(value);
        double over = value - below;
        if (over < 0.5 || over == 0.5 && below % 2 == 0) {
            return below;
        }
        // What has no fraction, and what is no number, is its own result.
        return over >= 0.5 ? below + 1 : value;
    }

    public static int convertWord(GuestThread thread, double value) {
        return roundWord(thread.fcsr, value);
    }

    public static int convertWord(GuestThread thread, float value) {
        return roundWord(thread.fcsr, (double) value);
    }

    public static long convertLong(GuestThread thread, double value) {
        return roundLong(thread.fcsr, value);
    }

    public static long convertLong(GuestThread thread, float value) {
        return roundLong(thread.fcsr, (double) value);
    }

    /** Floating-point control registers: 0 is the implementation, 31 control and status. */
    public static int readControl(GuestThread thread, int register) {
        switch (register) {
            case 0:
                // As QEMU's 24Kf: single, double, word and long formats.
                return 0x00739300;
            case 31:
                return thread.fcsr;
            default:
                return 0;
        }
    }

    public static void writeControl(GuestThread thread, int register, int value) {
        if (register == 31) {
            thread.fcsr = value;
        }
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

    // Control flow.

    /** Makes the call of {@code setjmp} that filled the buffer return once more. */
    public static void longJump(int buffer, int value) {
        throw new GuestJump(buffer, value);
    }

    /** Jumps to a label of a function further up, with its frame and stack pointer. */
    public static void jumpAway(GuestThread thread, int label, int frame, int stack) {
        thread.landedStack = stack;
        throw new GuestJump(frame | 1, stack | 2, label);
    }

    /** The stack pointer that the last such jump brought. */
    public static int landedStack(GuestThread thread) {
        return thread.landedStack;
    }

    /** The first number, but 0 if both are the same. */
    public static int unless(int a, int b) {
        return a == b ? 0 : a;
    }

    /** For addresses that cannot be executed. */
    public static Error nowhere(GuestThread thread, int pc) {
        return Signals.trap(thread, -1, pc);
    }
}
