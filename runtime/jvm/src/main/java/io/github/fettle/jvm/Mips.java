package io.github.fettle.jvm;

/**
 * What single MIPS instructions do that Java has no operation for.
 *
 * <p>Translated code calls these methods; they are small, so that the compiler inlines them.
 */
public final class Mips {
    private Mips() {}

    /** What conversions of values that are no integers of the format give. */
    private static final int INVALID_WORD = 0x7fffffff;

    private static final long INVALID_LONG = 0x7fffffffffffffffL;

    // Words that are not aligned, in two halves.

    public static int lwl(byte[] memory, int address, int old) {
        int shift = (3 - (address & 3)) * 8;
        int word = Memory.loadInt(memory, address & ~3);
        return shift == 0 ? word : word << shift | old & (1 << shift) - 1;
    }

    public static int lwr(byte[] memory, int address, int old) {
        int shift = (address & 3) * 8;
        int word = Memory.loadInt(memory, address & ~3);
        return shift == 0 ? word : word >>> shift | old & -1 << 32 - shift;
    }

    public static int lwlBig(byte[] memory, int address, int old) {
        int shift = (address & 3) * 8;
        int word = MemoryBig.loadInt(memory, address & ~3);
        return shift == 0 ? word : word << shift | old & (1 << shift) - 1;
    }

    public static int lwrBig(byte[] memory, int address, int old) {
        int shift = (3 - (address & 3)) * 8;
        int word = MemoryBig.loadInt(memory, address & ~3);
        return shift == 0 ? word : word >>> shift | old & -1 << 32 - shift;
    }

    public static void swl(byte[] memory, int address, int value) {
        for (int at = address, left = 24; at >= (address & ~3); at--, left -= 8) {
            memory[at] = (byte) (value >>> left);
        }
    }

    public static void swr(byte[] memory, int address, int value) {
        for (int at = address, right = 0; at <= (address | 3); at++, right += 8) {
            memory[at] = (byte) (value >>> right);
        }
    }

    public static void swlBig(byte[] memory, int address, int value) {
        for (int at = address, left = 24; at <= (address | 3); at++, left -= 8) {
            memory[at] = (byte) (value >>> left);
        }
    }

    public static void swrBig(byte[] memory, int address, int value) {
        for (int at = address, right = 0; at >= (address & ~3); at--, right += 8) {
            memory[at] = (byte) (value >>> right);
        }
    }

    // Load-linked and store-conditional: the store happens if the word is still what was seen.

    public static int loadLinked(byte[] memory, int address) {
        return Memory.loadLinked(memory, address);
    }

    public static int loadLinkedBig(byte[] memory, int address) {
        return MemoryBig.loadLinked(memory, address);
    }

    public static int storeConditional(byte[] memory, int address, int seen, int value) {
        return Memory.compareAndSet(memory, address, seen, value) ? 1 : 0;
    }

    public static int storeConditionalBig(byte[] memory, int address, int seen, int value) {
        return MemoryBig.compareAndSet(memory, address, seen, value) ? 1 : 0;
    }

    // Floating point.

    /** What x86 processors give where a result is no number; MIPS has another, without a sign. */
    private static final long HOST_NAN = 0xfff8000000000000L;

    private static final long NAN = 0x7ff7ffffffffffffL;
    private static final int HOST_NAN_FLOAT = 0xffc00000;
    private static final int NAN_FLOAT = 0x7fbfffff;

    public static long bits(double value) {
        long bits = Double.doubleToRawLongBits(value);
        return bits == HOST_NAN ? NAN : bits;
    }

    public static int bits(float value) {
        int bits = Float.floatToRawIntBits(value);
        return bits == HOST_NAN_FLOAT ? NAN_FLOAT : bits;
    }

    public static double nan(double value) {
        return value == value ? value : Double.longBitsToDouble(bits(value));
    }

    public static float nan(float value) {
        return value == value ? value : Float.intBitsToFloat(bits(value));
    }

    /** Whether less (4), equal (2) or unordered (1) is in the mask and holds. */
    public static int compare(double a, double b, int mask) {
        int is = a < b ? 4 : a == b ? 2 : a > b ? 0 : 1;
        return (is & mask) != 0 ? 1 : 0;
    }

    /** Whether less (4), equal (2) or unordered (1) is in the mask and holds. */
    public static int compare(float a, float b, int mask) {
        int is = a < b ? 4 : a == b ? 2 : a > b ? 0 : 1;
        return (is & mask) != 0 ? 1 : 0;
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
        double integral = integral(mode, value);
        if (integral != integral || integral < -0x1p63) {
            return INVALID_LONG;
        }
        return (long) integral;
    }

    public static long roundLong(int mode, float value) {
        return roundLong(mode, (double) value);
    }

    /** Rounds to an integer: 0 to the nearest, 1 towards zero, 2 up, 3 down. */
    private static double integral(int mode, double value) {
        switch (mode & 3) {
            case 0:
                return Math.rint(value);
            case 1:
                return value < 0 ? Math.ceil(value) : Math.floor(value);
            case 2:
                return Math.ceil(value);
            default:
                return Math.floor(value);
        }
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
                return (int) System.nanoTime();
            case 3:
                return 1;
            default:
                return 0;
        }
    }

    // Control flow.

    /** Makes the call of {@code setjmp} that filled the buffer return once more. */
    public static void longJump(int buffer, int value) {
        throw new GuestJump(buffer, value == 0 ? 1 : value);
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

    /** A library's start is over: what stands for its {@code main}. */
    public static void ready(GuestThread thread) {
        ThreadCalls.exitGroup(thread, 0);
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
