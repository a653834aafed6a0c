package io.github.fettle.jvm;

/**
 * What single MIPS instructions do that Java has no operation for.
 *
 * <p>Translated code calls these methods; they are small, so that the compiler inlines them.
 */
public final class Mips extends Instructions {
    private Mips() {}

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

    static double nearest(double value) {
        return Math.rint(value);
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

    /** A library's start is over: what stands for its {@code main}. */
    public static void ready(GuestThread thread) {
        ThreadCalls.exitGroup(thread, 0);
    }
}
