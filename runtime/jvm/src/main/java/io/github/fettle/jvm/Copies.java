package io.github.fettle.jvm;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.RecordComponent;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Copies of strings, arrays and records in the guest's memory, for the length of a call.
 *
 * <p>A record has the layout of a C structure with the same members: each at a multiple of its size.
 */
final class Copies implements AutoCloseable {
    private final Library library;
    private final GuestThread t;
    private final List<Integer> allocated = new ArrayList<>();

    Copies(Library library) {
        this.library = library;
        t = library.guest().thread();
    }

    int allocate(int size) {
        int address = library.malloc(Math.max(1, size));
        allocated.add(address);
        return address;
    }

    /** Copies a string, an array or a record to the guest; 0 for what needs none. */
    int in(Class<?> type, Object value) {
        if (value instanceof String) {
            int address = library.string((String) value);
            allocated.add(address);
            return address;
        } else if (value instanceof Record) {
            int address = allocate(size(type));
            write(address, (Record) value);
            return address;
        }
        int size = type.isArray() ? Marshal.elementSize(type) : 0;
        if (value == null || size == 0) {
            return 0;
        }
        int count = Array.getLength(value);
        int address = allocate(Math.multiplyExact(count, size));
        if (value instanceof byte[]) {
            System.arraycopy(value, 0, t.memory, address, count);
            return address;
        }
        for (int i = 0; i < count; i++) {
            store(address + i * size, Array.get(value, i));
        }
        return address;
    }

    private void store(int address, Object value) {
        if (value instanceof Integer) {
            t.store(address, (Integer) value);
        } else if (value instanceof Short) {
            t.storeShort(address, (Short) value);
        } else if (value instanceof Character) {
            t.storeShort(address, (Character) value);
        } else if (value instanceof Float) {
            t.store(address, Float.floatToRawIntBits((Float) value));
        } else if (value instanceof Long) {
            t.storeLong(address, (Long) value);
        } else if (value instanceof Double) {
            t.storeLong(address, Double.doubleToRawLongBits((Double) value));
        } else if (value instanceof Boolean) {
            t.memory[address] = (byte) ((Boolean) value ? 1 : 0);
        } else if (value instanceof Byte) {
            t.memory[address] = (Byte) value;
        } else {
            t.store(address, value == null ? 0 : in(String.class, value));
        }
    }

    void out(Object array, int address) {
        if (array instanceof byte[]) {
            byte[] bytes = (byte[]) array;
            System.arraycopy(t.memory, address, bytes, 0, bytes.length);
        } else if (array instanceof int[]) {
            int[] a = (int[]) array;
            Arrays.setAll(a, i -> t.load(address + i * 4));
        } else if (array instanceof long[]) {
            long[] a = (long[]) array;
            Arrays.setAll(a, i -> t.loadLong(address + i * 8));
        } else if (array instanceof double[]) {
            double[] a = (double[]) array;
            Arrays.setAll(a, i -> Double.longBitsToDouble(t.loadLong(address + i * 8)));
        } else if (array instanceof float[]) {
            float[] a = (float[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = Float.intBitsToFloat(t.load(address + i * 4));
            }
        } else if (array instanceof short[]) {
            short[] a = (short[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = (short) t.loadShort(address + i * 2);
            }
        } else if (array instanceof char[]) {
            char[] a = (char[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = (char) t.loadShort(address + i * 2);
            }
        }
    }

    // Records.

    private static int memberSize(Class<?> type) {
        if (type == boolean.class || type == byte.class) {
            return 1;
        } else if (type == short.class || type == char.class) {
            return 2;
        } else if (type == long.class || type == double.class) {
            return 8;
        } else if (type == int.class || type == float.class || type == String.class) {
            return 4;
        }
        throw new IllegalArgumentException("a record for C can't have a component of " + type);
    }

    /** The alignment of the structure that a record stands for. */
    static int alignment(Class<?> type) {
        int most = 1;
        for (RecordComponent component : type.getRecordComponents()) {
            most = Math.max(most, memberSize(component.getType()));
        }
        return most;
    }

    /** The size of the structure that a record stands for. */
    static int size(Class<?> type) {
        int end = 0;
        for (RecordComponent component : type.getRecordComponents()) {
            int size = memberSize(component.getType());
            end = (end + size - 1 & -size) + size;
        }
        int alignment = alignment(type);
        return end + alignment - 1 & -alignment;
    }

    private void write(int address, Record record) {
        int end = address;
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            int size = memberSize(component.getType());
            end = end + size - 1 & -size;
            store(end, Records.value(record, component));
            end += size;
        }
    }

    /** Makes a record of a structure. */
    Object read(Class<?> type, int address) {
        RecordComponent[] components = type.getRecordComponents();
        Class<?>[] types = new Class<?>[components.length];
        Object[] values = new Object[components.length];
        int end = address;
        for (int i = 0; i < components.length; i++) {
            types[i] = components[i].getType();
            int size = memberSize(types[i]);
            end = end + size - 1 & -size;
            values[i] = member(types[i], end);
            end += size;
        }
        try {
            Constructor<?> constructor = type.getDeclaredConstructor(types);
            return constructor.newInstance(values);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException(type + " can't be made", e);
        }
    }

    private Object member(Class<?> type, int address) {
        if (type == boolean.class) {
            return t.memory[address] != 0;
        } else if (type == byte.class) {
            return t.memory[address];
        } else if (type == short.class) {
            return (short) t.loadShort(address);
        } else if (type == char.class) {
            return (char) t.loadShort(address);
        } else if (type == int.class) {
            return t.load(address);
        } else if (type == long.class) {
            return t.loadLong(address);
        } else if (type == float.class) {
            return Float.intBitsToFloat(t.load(address));
        } else if (type == double.class) {
            return Double.longBitsToDouble(t.loadLong(address));
        }
        int text = t.load(address);
        return text == 0 ? null : GuestException.text(t, text);
    }

    @Override
    public void close() {
        for (int address : allocated) {
            library.free(address);
        }
    }
}
