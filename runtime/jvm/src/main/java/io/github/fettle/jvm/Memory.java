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
 *
 * <p>C2 inlines no more once a method has 8,000 bytes with what was inlined before, and each access
 * counts: methods here are as short as can be.
 */
public final class Memory {
    /** The last Java whose Unsafe reads arrays without a warning. */
    private static final int LAST_UNSAFE = 23;

    private static final Unsafe UNSAFE = unsafe();
    private static final boolean DIRECT = UNSAFE != null;
    /** Bytes before the first element of an array of bytes. */
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

        static short loadShort(byte[] memory, int address) {
            return (short) SHORT.get(memory, address);
        }

        static void storeShort(byte[] memory, int address, int value) {
            SHORT.set(memory, address, (short) value);
        }

        static char loadChar(byte[] memory, int address) {
            return (char) CHAR.get(memory, address);
        }

        static int loadInt(byte[] memory, int address) {
            return (int) INT.get(memory, address);
        }

        static void storeInt(byte[] memory, int address, int value) {
            INT.set(memory, address, value);
        }

        static long loadLong(byte[] memory, int address) {
            return (long) LONG.get(memory, address);
        }

        static void storeLong(byte[] memory, int address, long value) {
            LONG.set(memory, address, value);
        }

        static float loadFloat(byte[] memory, int address) {
            return (float) FLOAT.get(memory, address);
        }

        static void storeFloat(byte[] memory, int address, float value) {
            FLOAT.set(memory, address, value);
        }

        static double loadDouble(byte[] memory, int address) {
            return (double) DOUBLE.get(memory, address);
        }

        static void storeDouble(byte[] memory, int address, double value) {
            DOUBLE.set(memory, address, value);
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

    public static int loadInt(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getInt(memory, BASE + Objects.checkIndex(address, memory.length - 3))
                : Views.loadInt(memory, address);
    }

    public static short loadShort(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getShort(memory, BASE + Objects.checkIndex(address, memory.length - 1))
                : Views.loadShort(memory, address);
    }

    /** The unsigned half word. */
    public static int loadChar(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getChar(memory, BASE + Objects.checkIndex(address, memory.length - 1))
                : Views.loadChar(memory, address);
    }

    public static long loadLong(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getLong(memory, BASE + Objects.checkIndex(address, memory.length - 7))
                : Views.loadLong(memory, address);
    }

    public static float loadFloat(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getFloat(memory, BASE + Objects.checkIndex(address, memory.length - 3))
                : Views.loadFloat(memory, address);
    }

    public static double loadDouble(byte[] memory, int address) {
        return DIRECT
                ? UNSAFE.getDouble(memory, BASE + Objects.checkIndex(address, memory.length - 7))
                : Views.loadDouble(memory, address);
    }

    public static void storeInt(byte[] memory, int address, int value) {
        if (DIRECT) {
            UNSAFE.putInt(
                    memory, BASE + Objects.checkIndex(address, memory.length - 3), value);
        } else {
            Views.storeInt(memory, address, value);
        }
    }

    public static void storeShort(byte[] memory, int address, int value) {
        if (DIRECT) {
            UNSAFE.putShort(
                    memory, BASE + Objects.checkIndex(address, memory.length - 1), (short) value);
        } else {
            Views.storeShort(memory, address, value);
        }
    }

    public static void storeLong(byte[] memory, int address, long value) {
        if (DIRECT) {
            UNSAFE.putLong(
                    memory, BASE + Objects.checkIndex(address, memory.length - 7), value);
        } else {
            Views.storeLong(memory, address, value);
        }
    }

    public static void storeFloat(byte[] memory, int address, float value) {
        if (DIRECT) {
            UNSAFE.putFloat(
                    memory, BASE + Objects.checkIndex(address, memory.length - 3), value);
        } else {
            Views.storeFloat(memory, address, value);
        }
    }

    public static void storeDouble(byte[] memory, int address, double value) {
        if (DIRECT) {
            UNSAFE.putDouble(
                    memory, BASE + Objects.checkIndex(address, memory.length - 7), value);
        } else {
            Views.storeDouble(memory, address, value);
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
