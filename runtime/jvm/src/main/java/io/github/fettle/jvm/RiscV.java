package io.github.fettle.jvm;

/** What single RISC-V instructions do that Java has no operation for. */
public final class RiscV {
    private RiscV() {}

    /** What x86 processors give where a result is no number; RISC-V has another, without a sign. */
    private static final long HOST_NAN = 0xfff8000000000000L;

    private static final long NAN = 0x7ff8000000000000L;
    private static final int HOST_NAN_FLOAT = 0xffc00000;
    private static final int NAN_FLOAT = 0x7fc00000;

    private static final int FLAGS = 1;
    private static final int MODE = 2;
    private static final int FLOAT_CONTROL = 3;
    private static final int CYCLE = 0xc00;
    private static final int TIME = 0xc01;
    private static final int CYCLE_HIGH = 0xc80;
    private static final int TIME_HIGH = 0xc81;

    // Integers: no division faults.

    public static int divide(int a, int b) {
        return b == 0 ? -1 : a / b;
    }

    public static int divideUnsigned(int a, int b) {
        return b == 0 ? -1 : Integer.divideUnsigned(a, b);
    }

    public static int remainder(int a, int b) {
        return b == 0 ? a : a % b;
    }

    public static int remainderUnsigned(int a, int b) {
        return b == 0 ? a : Integer.remainderUnsigned(a, b);
    }

    /** Reads a word and writes what is made of it, by the number of the instruction. */
    public static int atomic(byte[] memory, int address, int value, int kind) {
        while (true) {
            int old = Memory.loadLinked(memory, address);
            if (Memory.compareAndSet(memory, address, old, combine(old, value, kind))) {
                return old;
            }
        }
    }

    private static int combine(int old, int value, int kind) {
        switch (kind) {
            case 0:
                return value;
            case 1:
                return old + value;
            case 2:
                return old ^ value;
            case 3:
                return old & value;
            case 4:
                return old | value;
            case 5:
                return Math.min(old, value);
            case 6:
                return Math.max(old, value);
            case 7:
                return Integer.compareUnsigned(old, value) < 0 ? old : value;
            default:
                return Integer.compareUnsigned(old, value) > 0 ? old : value;
        }
    }

    // Floating point.

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

    /** Minus zero is less than zero, and what is no number gives way to what is one. */
    public static double min(double a, double b) {
        return a != a ? b : b != b ? a : Math.min(a, b);
    }

    public static float min(float a, float b) {
        return a != a ? b : b != b ? a : Math.min(a, b);
    }

    public static double max(double a, double b) {
        return a != a ? b : b != b ? a : Math.max(a, b);
    }

    public static float max(float a, float b) {
        return a != a ? b : b != b ? a : Math.max(a, b);
    }

    public static double xorSign(double a, double b) {
        long sign = Double.doubleToRawLongBits(b) & Long.MIN_VALUE;
        return Double.longBitsToDouble(Double.doubleToRawLongBits(a) ^ sign);
    }

    public static float xorSign(float a, float b) {
        int sign = Float.floatToRawIntBits(b) & Integer.MIN_VALUE;
        return Float.intBitsToFloat(Float.floatToRawIntBits(a) ^ sign);
    }

    /** The bit of what a number is: from minus infinity to the two kinds of what is none. */
    public static int classify(double value) {
        long bits = Double.doubleToRawLongBits(value);
        if (value != value) {
            return (bits & 0x8000000000000L) != 0 ? 1 << 9 : 1 << 8;
        }
        double size = Math.abs(value);
        return classify(bits < 0, size, Double.MIN_NORMAL, size == Double.POSITIVE_INFINITY);
    }

    public static int classify(float value) {
        int bits = Float.floatToRawIntBits(value);
        if (value != value) {
            return (bits & 0x400000) != 0 ? 1 << 9 : 1 << 8;
        }
        float size = Math.abs(value);
        return classify(bits < 0, size, Float.MIN_NORMAL, size == Float.POSITIVE_INFINITY);
    }

    private static int classify(boolean minus, double size, double normal, boolean infinite) {
        int kind = infinite ? 0 : size >= normal ? 1 : size > 0 ? 2 : 3;
        return 1 << (minus ? kind : 7 - kind);
    }

    /** To a signed integer: what is too large gives the nearest, what is no number the largest. */
    public static int toInt(GuestThread t, int mode, double value) {
        return value != value ? Integer.MAX_VALUE : (int) rounded(t, mode, value);
    }

    public static int toUnsigned(GuestThread t, int mode, double value) {
        double rounded = rounded(t, mode, value);
        if (rounded != rounded || rounded >= 4294967296.0) {
            return -1;
        }
        return rounded <= 0 ? 0 : (int) (long) rounded;
    }

    private static double rounded(GuestThread t, int mode, double value) {
        switch (mode == 7 ? t.fcsr >> 5 & 7 : mode) {
            case 1:
                return value < 0 ? Math.ceil(value) : Math.floor(value);
            case 2:
                return Math.floor(value);
            case 3:
                return Math.ceil(value);
            case 4:
                double away = Math.floor(Math.abs(value) + 0.5);
                return Math.abs(value) < 0x1p52 ? Math.copySign(away, value) : value;
            default:
                return Math.rint(value);
        }
    }

    // The machine.

    public static void setThreadPointer(GuestThread t, int value) {
        t.tls = value;
    }

    /** Control registers: those of floating point and of time; others read as nought. */
    public static int readControl(GuestThread t, int number) {
        switch (number) {
            case FLAGS:
                return t.fcsr & 31;
            case MODE:
                return t.fcsr >> 5 & 7;
            case FLOAT_CONTROL:
                return t.fcsr;
            case CYCLE:
            case TIME:
                return (int) System.nanoTime();
            case CYCLE_HIGH:
            case TIME_HIGH:
                return (int) (System.nanoTime() >>> 32);
            default:
                return 0;
        }
    }

    public static void writeControl(GuestThread t, int number, int value) {
        switch (number) {
            case FLAGS:
                t.fcsr = t.fcsr & ~31 | value & 31;
                break;
            case MODE:
                t.fcsr = t.fcsr & 31 | (value & 7) << 5;
                break;
            case FLOAT_CONTROL:
                t.fcsr = value & 255;
                break;
            default:
        }
    }

    /** Calls the debugger, by which a program without a kernel reaches files. */
    public static int semihost(GuestThread t, int operation, int parameters) {
        return Semihost.call(t, operation, parameters);
    }
}
