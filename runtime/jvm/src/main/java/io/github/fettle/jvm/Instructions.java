package io.github.fettle.jvm;

/** What single MIPS instructions do, as far as every kind of Java can do it in the same way. */
public abstract class Instructions {
    Instructions() {}

    /** What conversions of values that are no integers of the format give. */
    private static final int INVALID_WORD = 0x7fffffff;

    private static final long INVALID_LONG = 0x7fffffffffffffffL;

    // Floating point.

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
        if (integral != integral || integral < -9223372036854775808.0) {
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
                return Mips.nearest(value);
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
