package io.github.fettle.jvm;

/**
 * Big-endian access to a guest's memory, byte by byte: Android has no handles for views of arrays
 * before its version 13.
 *
 * <p>A guest address is an index into the array, used as it is: the JVM's own bounds check is the
 * guest's page fault. Stores begin with the last byte, so that one that faults changes nothing.
 */
public final class MemoryBig {
    private MemoryBig() {}

    public static int loadInt(byte[] memory, int address) {
        return memory[address] << 24
                | (memory[address + 1] & 255) << 16
                | (memory[address + 2] & 255) << 8
                | memory[address + 3] & 255;
    }

    public static short loadShort(byte[] memory, int address) {
        return (short) (memory[address] << 8 | memory[address + 1] & 255);
    }

    /** The unsigned half word. */
    public static int loadChar(byte[] memory, int address) {
        return loadShort(memory, address) & 0xffff;
    }

    public static long loadLong(byte[] memory, int address) {
        long high = loadInt(memory, address);
        return high << 32 | loadInt(memory, address + 4) & 0xffff_ffffL;
    }

    public static float loadFloat(byte[] memory, int address) {
        return Float.intBitsToFloat(loadInt(memory, address));
    }

    public static double loadDouble(byte[] memory, int address) {
        return Double.longBitsToDouble(loadLong(memory, address));
    }

    public static void storeInt(byte[] memory, int address, int value) {
        memory[address + 3] = (byte) value;
        memory[address] = (byte) (value >> 24);
        memory[address + 1] = (byte) (value >> 16);
        memory[address + 2] = (byte) (value >> 8);
    }

    public static void storeShort(byte[] memory, int address, int value) {
        memory[address + 1] = (byte) value;
        memory[address] = (byte) (value >> 8);
    }

    public static void storeLong(byte[] memory, int address, long value) {
        storeInt(memory, address + 4, (int) value);
        storeInt(memory, address, (int) (value >>> 32));
    }

    public static void storeFloat(byte[] memory, int address, float value) {
        storeInt(memory, address, Float.floatToRawIntBits(value));
    }

    public static void storeDouble(byte[] memory, int address, double value) {
        storeLong(memory, address, Double.doubleToRawLongBits(value));
    }

    /** What {@code ll} does. */
    public static int loadLinked(byte[] memory, int address) {
        int value = loadInt(memory, address);
        Fences.fullFence();
        return value;
    }

    /** What {@code sc} does after an {@code ll} that saw {@code seen}, as a full fence. */
    public static boolean compareAndSet(byte[] memory, int address, int seen, int value) {
        return Atomics.compareAndSet(memory, address, Integer.reverseBytes(seen), Integer.reverseBytes(value));
    }
}
