package io.github.fettle.jvm;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.reflect.Field;
import java.nio.ByteOrder;
import java.util.Objects;
import sun.misc.Unsafe;

/**
 * Little-endian access to a guest's memory.
 *
 * <p>A guest address is an index into the array, used as it is: the JVM's own bounds check is the
 * guest's page fault. Unaligned plain accesses are allowed, because the translator fuses
 * {@code lwl}/{@code lwr} pairs into one.
 *
 * <p>A handle's access is a handful of calls until C2 has compiled it, and half of what C2 then
 * compiles. Where it may be used without a warning, Unsafe is one call, behind the same bounds
 * check; newer JVMs (24 on) have the handles.
 */
public final class Memory {
    /** The last Java whose Unsafe reads arrays without a warning. */
    private static final int LAST_UNSAFE = 23;

    private static final Unsafe UNSAFE = unsafe();
    private static final boolean DIRECT = UNSAFE != null;
    private static final long BASE = Unsafe.ARRAY_BYTE_BASE_OFFSET;

    private Memory() {}

    /** Handles for the JVMs that need them: making them takes longer than a short program. */
    static final class Views {
        static final VarHandle SHORT = view(short[].class);
        static final VarHandle CHAR = view(char[].class);
        static final VarHandle INT = view(int[].class);
        static final VarHandle LONG = view(long[].class);
        static final VarHandle FLOAT = view(float[].class);
        static final VarHandle DOUBLE = view(double[].class);

        private Views() {}

        private static VarHandle view(Class<?> array) {
            return MethodHandles.byteArrayViewVarHandle(array, ByteOrder.LITTLE_ENDIAN);
        }
    }

    /** Unsafe, where its accesses have this byte order and need no alignment; otherwise null. */
    private static Unsafe unsafe() {
        String machine = System.getProperty("os.arch");
        if (Runtime.version().feature() > LAST_UNSAFE
                || !machine.equals("amd64") && !machine.equals("aarch64")) {
            return null;
        }
        try {
            Field field = Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return (Unsafe) field.get(null);
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** The offset of an address that may be used if the bytes behind it are memory as well. */
    private static long at(byte[] memory, int address, int behind) {
        return BASE + Objects.checkIndex(address, memory.length - behind);
    }

    public static int loadInt(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getInt(memory, at(memory, address, 3))
                : (int) Views.INT.get(memory, address);
    }

    public static short loadShort(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getShort(memory, at(memory, address, 1))
                : (short) Views.SHORT.get(memory, address);
    }

    /** The unsigned half word. */
    public static int loadChar(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getChar(memory, at(memory, address, 1))
                : (char) Views.CHAR.get(memory, address);
    }

    public static long loadLong(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getLong(memory, at(memory, address, 7))
                : (long) Views.LONG.get(memory, address);
    }

    public static float loadFloat(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getFloat(memory, at(memory, address, 3))
                : (float) Views.FLOAT.get(memory, address);
    }

    public static double loadDouble(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getDouble(memory, at(memory, address, 7))
                : (double) Views.DOUBLE.get(memory, address);
    }

    public static void storeInt(byte[] memory, int address, int value) {
        if (DIRECT) {
            UNSAFE.putInt(memory, at(memory, address, 3), value);
        } else {
            Views.INT.set(memory, address, value);
        }
    }

    public static void storeShort(byte[] memory, int address, int value) {
        if (DIRECT) {
            UNSAFE.putShort(memory, at(memory, address, 1), (short) value);
        } else {
            Views.SHORT.set(memory, address, (short) value);
        }
    }

    public static void storeLong(byte[] memory, int address, long value) {
        if (DIRECT) {
            UNSAFE.putLong(memory, at(memory, address, 7), value);
        } else {
            Views.LONG.set(memory, address, value);
        }
    }

    public static void storeFloat(byte[] memory, int address, float value) {
        if (DIRECT) {
            UNSAFE.putFloat(memory, at(memory, address, 3), value);
        } else {
            Views.FLOAT.set(memory, address, value);
        }
    }

    public static void storeDouble(byte[] memory, int address, double value) {
        if (DIRECT) {
            UNSAFE.putDouble(memory, at(memory, address, 7), value);
        } else {
            Views.DOUBLE.set(memory, address, value);
        }
    }

    /** What {@code ll} does. */
    public static int loadLinked(byte[] memory, int address) {
        int value = loadInt(memory, address);
        VarHandle.acquireFence();
        return value;
    }

    /** What {@code sc} does after an {@code ll} that saw {@code seen}, as a full fence. */
    public static boolean compareAndSet(byte[] memory, int address, int seen, int value) {
        return Atomics.compareAndSet(memory, address, seen, value, ByteOrder.LITTLE_ENDIAN);
    }
}
