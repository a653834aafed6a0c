package io.github.fettle.jvm;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Big-endian access to a guest's memory.
 *
 * <p>A guest address is an index into the array, used as it is: the JVM's own bounds check is the
 * guest's page fault. Unaligned plain accesses are allowed, because the translator fuses
 * {@code lwl}/{@code lwr} pairs into one.
 */
public final class MemoryBig {
    public static final VarHandle SHORT = view(short[].class);
    public static final VarHandle CHAR = view(char[].class);
    public static final VarHandle INT = view(int[].class);
    public static final VarHandle LONG = view(long[].class);
    public static final VarHandle FLOAT = view(float[].class);
    public static final VarHandle DOUBLE = view(double[].class);

    private MemoryBig() {}

    private static VarHandle view(Class<?> array) {
        return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.BIG_ENDIAN);
    }

    public static int loadInt(byte[] memory, int address) {
        return (int) INT.get(memory, address);
    }

    public static short loadShort(byte[] memory, int address) {
        return (short) SHORT.get(memory, address);
    }

    /** The unsigned half word. */
    public static int loadChar(byte[] memory, int address) {
        return (char) CHAR.get(memory, address);
    }

    public static long loadLong(byte[] memory, int address) {
        return (long) LONG.get(memory, address);
    }

    public static float loadFloat(byte[] memory, int address) {
        return (float) FLOAT.get(memory, address);
    }

    public static double loadDouble(byte[] memory, int address) {
        return (double) DOUBLE.get(memory, address);
    }

    public static void storeInt(byte[] memory, int address, int value) {
        INT.set(memory, address, value);
    }

    public static void storeShort(byte[] memory, int address, int value) {
        SHORT.set(memory, address, (short) value);
    }

    public static void storeLong(byte[] memory, int address, long value) {
        LONG.set(memory, address, value);
    }

    public static void storeFloat(byte[] memory, int address, float value) {
        FLOAT.set(memory, address, value);
    }

    public static void storeDouble(byte[] memory, int address, double value) {
        DOUBLE.set(memory, address, value);
    }

    /** What {@code ll} does. */
    public static int loadLinked(byte[] memory, int address) {
        int value = (int) INT.get(memory, address);
        VarHandle.acquireFence();
        return value;
    }

    /** What {@code sc} does after an {@code ll} that saw {@code seen}, as a full fence. */
    public static boolean compareAndSet(byte[] memory, int address, int seen, int value) {
        return Atomics.compareAndSet(memory, address, seen, value, ByteOrder.BIG_ENDIAN);
    }
}
