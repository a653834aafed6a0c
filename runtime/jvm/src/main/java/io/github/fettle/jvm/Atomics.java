package io.github.fettle.jvm;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.invoke.VarHandle;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Objects;

/**
 * Compare-and-set on a word of a byte array.
 *
 * <p>Up to JDK 22 a byte array's VarHandle does it. Since JDK 23 it throws (JDK-8318966: the
 * specification no longer promises that array elements are aligned), although HotSpot aligns them
 * as ever. Then the JDK's internal Unsafe serves, which a translated jar's manifest exports to us
 * ({@code Add-Exports: java.base/jdk.internal.misc}); a library's user may lack the export, and
 * gets {@code sun.misc.Unsafe}, which warns once; where that is gone too, locks remain.
 *
 * <p>All that only once some guest has a second thread: before, a comparison and a store do.
 */
final class Atomics {
    private static boolean concurrent;

    private Atomics() {}

    /** Some guest is about to start a second thread, which will see this: starting it is a fence. */
    static void setConcurrent() {
        concurrent = true;
    }

    static boolean compareAndSet(
            byte[] memory, int address, int seen, int value, ByteOrder order) {
        if ((address & 3) != 0) {
            throw new IndexOutOfBoundsException("unaligned sc at 0x" + Integer.toHexString(address));
        }
        if (!concurrent) {
            return plain(memory, address, seen, value, order);
        }
        if (Handles.ARE_ATOMIC) {
            VarHandle handle =
                    order == ByteOrder.BIG_ENDIAN ? MemoryBig.INT : Memory.Views.INT;
            return handle.compareAndSet(memory, address, seen, value);
        }
        Objects.checkFromIndexSize(address, 4, memory.length);
        return Late.compareAndSet(memory, address, seen, value, order);
    }

    private static boolean plain(
            byte[] memory, int address, int seen, int value, ByteOrder order) {
        boolean big = order == ByteOrder.BIG_ENDIAN;
        int found = big ? MemoryBig.loadInt(memory, address) : Memory.loadInt(memory, address);
        if (found != seen) {
            return false;
        } else if (big) {
            MemoryBig.storeInt(memory, address, value);
        } else {
            Memory.storeInt(memory, address, value);
        }
        return true;
    }

    /** Whether handles compare and set, which a program with one thread does not ask. */
    private static final class Handles {
        static final boolean ARE_ATOMIC = Memory.Views.INT.isAccessModeSupported(
                VarHandle.AccessMode.COMPARE_AND_SET);
    }

    /** What is looked for only when it is needed, since looking may warn. */
    private static final class Late {
        /** Bytes before the first element of a byte array. */
        private static final long BASE = 16;

        /** {@code boolean (Object array, long offset, int seen, int value)}, or null. */
        private static final MethodHandle UNSAFE = unsafe();

        private static final Object[] LOCKS = new Object[64];

        static {
            Arrays.setAll(LOCKS, i -> new Object());
        }

        static boolean compareAndSet(
                byte[] memory, int address, int seen, int value, ByteOrder order) {
            if (UNSAFE != null) {
                return byUnsafe(memory, address, swap(seen, order), swap(value, order));
            }
            synchronized (LOCKS[address >>> 2 & LOCKS.length - 1]) {
                return plain(memory, address, seen, value, order);
            }
        }

        private static int swap(int value, ByteOrder order) {
            return order == ByteOrder.nativeOrder() ? value : Integer.reverseBytes(value);
        }

        private static boolean byUnsafe(byte[] memory, int address, int seen, int value) {
            try {
                return (boolean) UNSAFE.invokeExact((Object) memory, BASE + address, seen, value);
            } catch (Throwable e) {
                throw new AssertionError(e);
            }
        }

        private static MethodHandle unsafe() {
            MethodHandle internal = internalUnsafe();
            return internal != null ? internal : publicUnsafe();
        }

        private static MethodHandle internalUnsafe() {
            try {
                Class<?> type = Class.forName("jdk.internal.misc.Unsafe");
                Method instance = type.getMethod("getUnsafe");
                return find(type, instance.invoke(null), "compareAndSetInt");
            } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
                return null;
            }
        }

        private static MethodHandle publicUnsafe() {
            try {
                Class<?> type = Class.forName("sun.misc.Unsafe");
                Field instance = type.getDeclaredField("theUnsafe");
                instance.setAccessible(true);
                return find(type, instance.get(null), "compareAndSwapInt");
            } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
                return null;
            }
        }

        private static MethodHandle find(Class<?> type, Object instance, String name)
                throws ReflectiveOperationException {
            if (type.getField("ARRAY_BYTE_BASE_OFFSET").getLong(null) != BASE) {
                return null;
            }
            MethodType signature = MethodType.methodType(
                    boolean.class, Object.class, long.class, int.class, int.class);
            return MethodHandles.lookup().findVirtual(type, name, signature).bindTo(instance);
        }
    }
}
