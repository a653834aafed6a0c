package io.github.fettle.jvm;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/**
 * Compare-and-set on a word of a byte array.
 *
 * <p>Android's Unsafe does it, whose methods apps may call by reflection; where it is not there, locks
 * remain. All that only once some guest has a second thread: before, a comparison and a store do.
 */
final class Atomics {
    private static boolean concurrent;

    private Atomics() {}

    /** Some guest is about to start a second thread, which will see this: starting it is a fence. */
    static void setConcurrent() {
        concurrent = true;
    }

    /**
     * @param seen the word as it lies in memory: the first byte is the lowest
     * @param value what it becomes, likewise
     */
    static boolean compareAndSet(byte[] memory, int address, int seen, int value) {
        if ((address & 3) != 0 || address < 0 || address > memory.length - 4) {
            throw new IndexOutOfBoundsException("sc at 0x" + Integer.toHexString(address));
        }
        if (!concurrent) {
            return plain(memory, address, seen, value);
        }
        return Late.compareAndSet(memory, address, seen, value);
    }

    private static boolean plain(byte[] memory, int address, int seen, int value) {
        if (Memory.loadInt(memory, address) != seen) {
            return false;
        }
        Memory.storeInt(memory, address, value);
        return true;
    }

    /** What is looked for only when it is needed. */
    private static final class Late {
        private static final Object LOCK = new Object();
        private static Object unsafe;
        private static Method method;
        private static long base;

        static {
            try {
                Class<?> type = Class.forName("sun.misc.Unsafe");
                Field instance = type.getDeclaredField("theUnsafe");
                instance.setAccessible(true);
                unsafe = instance.get(null);
                Method offset = type.getMethod("arrayBaseOffset", Class.class);
                base = ((Number) offset.invoke(unsafe, byte[].class)).longValue();
                Class<?>[] parameters = {Object.class, long.class, int.class, int.class};
                method = base % 4 == 0 ? type.getMethod("compareAndSwapInt", parameters) : null;
            } catch (ReflectiveOperationException | RuntimeException e) {
                method = null;
            }
        }

        static boolean compareAndSet(byte[] memory, int address, int seen, int value) {
            if (method == null) {
                synchronized (LOCK) {
                    return plain(memory, address, seen, value);
                }
            }
            try {
                // All processors that Android runs on have the lowest byte first.
                return (boolean) method.invoke(unsafe, memory, base + address, seen, value);
            } catch (IllegalAccessException | InvocationTargetException e) {
                throw new AssertionError(e);
            }
        }
    }
}
