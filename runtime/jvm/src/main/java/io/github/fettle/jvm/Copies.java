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
            write(library.guest().index(address), (Record) value);
            return address;
        }
        int size = type.isArray() ? Marshal.elementSize(type) : 0;
        if (value == null || size == 0) {
            return 0;
        }
        int count = Array.getLength(value);
        int address = allocate(Math.multiplyExact(count, size));
        int at = library.guest().index(address);
        if (value instanceof byte[]) {
            System.arraycopy(value, 0, t.memory, at, count);
            return address;
        }
        for (int i = 0; i < count; i++) {
            store(at + i * size, Array.get(value, i));
        }
        return address;
    }

    private void store(int at, Object value) {
        if (value instanceof Integer) {
            t.store(at, (Integer) value);
        } else if (value instanceof Short) {
            t.storeShort(at, (Short) value);
        } else if (value instanceof Character) {
            t.storeShort(at, (Character) value);
        } else if (value instanceof Float) {
            t.store(at, Float.floatToRawIntBits((Float) value));
        } else if (value instanceof Long) {
            t.storeLong(at, (Long) value);
        } else if (value instanceof Double) {
            t.storeLong(at, Double.doubleToRawLongBits((Double) value));
        } else if (value instanceof Boolean) {
            t.memory[at] = (byte) ((Boolean) value ? 1 : 0);
        } else if (value instanceof Byte) {
            t.memory[at] = (Byte) value;
        } else {
            t.store(at, value == null ? 0 : in(String.class, value));
        }
    }

    /** Copies an array of the guest's to one of Java's. */
    void out(Object array, int address) {
        int at = library.guest().index(address);
        if (array instanceof byte[]) {
            byte[] bytes = (byte[]) array;
            System.arraycopy(t.memory, at, bytes, 0, bytes.length);
        } else if (array instanceof int[]) {
            int[] a = (int[]) array;
            Arrays.setAll(a, i -> t.load(at + i * 4));
        } else if (array instanceof long[]) {
            long[] a = (long[]) array;
            Arrays.setAll(a, i -> t.loadLong(at + i * 8));
        } else if (array instanceof double[]) {
            double[] a = (double[]) array;
            Arrays.setAll(a, i -> Double.longBitsToDouble(t.loadLong(at + i * 8)));
        } else if (array instanceof float[]) {
            float[] a = (float[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = Float.intBitsToFloat(t.load(at + i * 4));
            }
        } else if (array instanceof short[]) {
            short[] a = (short[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = (short) t.loadShort(at + i * 2);
            }
        } else if (array instanceof char[]) {
            char[] a = (char[]) array;
            for (int i = 0; i < a.length; i++) {
                a[i] = (char) t.loadShort(at + i * 2);
            }
        }
    }

    // Records.

    static int memberSize(Class<?> type) {
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
        for (Class<?> member : members(type)) {
            most = Math.max(most, memberSize(member));
        }
        return most;
    }

    /** The size of the structure that a record stands for. */
    static int size(Class<?> type) {
        int end = 0;
        for (Class<?> member : members(type)) {
            int size = memberSize(member);
            end = (end + size - 1 & -size) + size;
        }
        int alignment = alignment(type);
        return end + alignment - 1 & -alignment;
    }

    /** The types of the members of the structure that a record stands for. */
    static Class<?>[] members(Class<?> type) {
        RecordComponent[] components = type.getRecordComponents();
        Class<?>[] members = new Class<?>[components.length];
        for (int i = 0; i < members.length; i++) {
            members[i] = components[i].getType();
        }
        return members;
    }

    private void write(int at, Record record) {
        int end = at;
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            int size = memberSize(component.getType());
            end = end + size - 1 & -size;
            store(end, Records.value(record, component));
            end += size;
        }
    }

    /** Makes a record of a structure. */
    Object read(Class<?> type, int address) {
        Class<?>[] types = members(type);
        Object[] values = new Object[types.length];
        int end = library.guest().index(address);
        for (int i = 0; i < types.length; i++) {
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

    private Object member(Class<?> type, int at) {
        if (type == boolean.class) {
            return t.memory[at] != 0;
        } else if (type == byte.class) {
            return t.memory[at];
        } else if (type == short.class) {
            return (short) t.loadShort(at);
        } else if (type == char.class) {
            return (char) t.loadShort(at);
        } else if (type == int.class) {
            return t.load(at);
        } else if (type == long.class) {
            return t.loadLong(at);
        } else if (type == float.class) {
            return Float.intBitsToFloat(t.load(at));
        } else if (type == double.class) {
            return Double.longBitsToDouble(t.loadLong(at));
        }
        int text = t.load(at);
        return text == 0 ? null : GuestException.text(t, text);
    }

    @Override
    public void close() {
        for (int address : allocated) {
            library.free(address);
        }
    }
}
