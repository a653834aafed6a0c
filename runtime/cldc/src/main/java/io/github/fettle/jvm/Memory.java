package io.github.fettle.jvm;

/**
 * Little-endian access to a program's memory, which is an array of words: the one type of array
 * that a device's interpreter reads a word of at once.
 *
 * <p>A word's index is its address without the last two bits. Negative addresses become indexes
 * behind the array, so that the JVM's bounds check is the program's page fault.
 */
public final class Memory {
    private Memory() {}

    public static byte loadByte(int[] memory, int address) {
        return (byte) (memory[address >>> 2] >>> ((address & 3) << 3));
    }

    public static short loadShort(int[] memory, int address) {
        if ((address & 1) != 0) {
            return (short) (loadByte(memory, address + 1) << 8 | loadByte(memory, address) & 255);
        }
        return (short) (memory[address >>> 2] >>> ((address & 2) << 3));
    }

    /** The unsigned half word. */
    public static int loadChar(int[] memory, int address) {
        return loadShort(memory, address) & 0xffff;
    }

    /** A word, which need not be aligned. */
    public static int loadInt(int[] memory, int address) {
        if ((address & 3) == 0) {
            return memory[address >>> 2];
        }
        return loadByte(memory, address + 3) << 24
                | (loadByte(memory, address + 2) & 255) << 16
                | (loadByte(memory, address + 1) & 255) << 8
                | loadByte(memory, address) & 255;
    }

    public static long loadLong(int[] memory, int address) {
        long high = loadInt(memory, address + 4);
        return high << 32 | loadInt(memory, address) & 0xffffffffL;
    }

    public static float loadFloat(int[] memory, int address) {
        return Float.intBitsToFloat(loadInt(memory, address));
    }

    public static double loadDouble(int[] memory, int address) {
        return Double.longBitsToDouble(loadLong(memory, address));
    }

    public static void storeByte(int[] memory, int address, int value) {
        int shift = (address & 3) << 3;
        int word = memory[address >>> 2] & ~(255 << shift);
        memory[address >>> 2] = word | (value & 255) << shift;
    }

    public static void storeShort(int[] memory, int address, int value) {
        if ((address & 1) != 0) {
            storeByte(memory, address, value);
            storeByte(memory, address + 1, value >> 8);
            return;
        }
        int shift = (address & 2) << 3;
        int word = memory[address >>> 2] & ~(0xffff << shift);
        memory[address >>> 2] = word | (value & 0xffff) << shift;
    }

    /** A word, which need not be aligned. */
    public static void storeInt(int[] memory, int address, int value) {
        if ((address & 3) == 0) {
            memory[address >>> 2] = value;
        } else {
            storeByte(memory, address, value);
            storeByte(memory, address + 1, value >> 8);
            storeByte(memory, address + 2, value >> 16);
            storeByte(memory, address + 3, value >> 24);
        }
    }

    public static void storeLong(int[] memory, int address, long value) {
        storeInt(memory, address + 4, (int) (value >>> 32));
        storeInt(memory, address, (int) value);
    }

    public static void storeFloat(int[] memory, int address, float value) {
        storeInt(memory, address, Float.floatToIntBits(value));
    }

    public static void storeDouble(int[] memory, int address, double value) {
        storeLong(memory, address, Double.doubleToLongBits(value));
    }
}
