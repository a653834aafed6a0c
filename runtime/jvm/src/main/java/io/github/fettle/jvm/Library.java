package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;
import java.lang.annotation.Annotation;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.Map;

/**
 * A C or C++ library in Java: the functions that {@code FETTLE_EXPORT} named, called through an
 * interface that the user writes.
 *
 * <pre>{@code
 * interface Zlib extends AutoCloseable {
 *     int compress2(byte[] to, int[] toLength, @In byte[] from, int fromLength, int level);
 *     String zlibVersion();
 * }
 * try (Library library = Library.open(new Program(), image, Options.none())) {
 *     Zlib zlib = library.as(Zlib.class);
 * }
 * }</pre>
 *
 * <p>Strings and arrays are copied to the guest for the length of the call, arrays also back. A
 * lambda becomes a function pointer, which is good until the library is closed. Any other object
 * becomes a handle. One thread at a time may use it.
 */
public final class Library implements AutoCloseable {
    private final Guest guest;
    private final GuestThread t;
    private final int malloc;
    private final int free;

    /** One function pointer a lambda, so that C can compare them. */
    private final Map<Object, Integer> callbacks = new IdentityHashMap<>();

    private Library(Guest guest) {
        this.guest = guest;
        t = guest.thread();
        malloc = address("malloc");
        free = address("free");
    }

    /** Starts an instance: its constructors run, and its memory is its own. */
    public static Library open(GuestCode code, InputStream image, Options options)
            throws IOException {
        return start(Guest.open(code, image, options));
    }

    static Library start(Guest guest) throws IOException {
        guest.initialize();
        return new Library(guest);
    }

    /** Implements an interface whose methods have the names of exported functions. */
    public <T> T as(Class<T> type) {
        InvocationHandler handler = (proxy, method, arguments) -> invoke(proxy, method, arguments);
        Object proxy =
                Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler);
        for (Method method : type.getMethods()) {
            if (!isOwn(method) && !method.isDefault()) {
                address(method.getName()); // fail now rather than at the first call
            }
        }
        return type.cast(proxy);
    }

    private static boolean isOwn(Method method) {
        return method.getDeclaringClass() == Object.class
                || method.getName().equals("close") && method.getParameterCount() == 0;
    }

    private Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (method.getDeclaringClass() == Object.class) {
            switch (method.getName()) {
                case "equals":
                    return proxy == arguments[0];
                case "hashCode":
                    return System.identityHashCode(proxy);
                default:
                    return "library " + guest.options.name;
            }
        }
        if (isOwn(method) && !guest.exports.has("close")) {
            close();
            return null;
        }
        if (method.isDefault()) {
            return InvocationHandler.invokeDefault(proxy, method, arguments);
        }
        Object[] values = arguments == null ? new Object[0] : arguments;
        return call(address(method.getName()), method, values);
    }

    private Object call(int function, Method method, Object[] values) {
        Class<?>[] types = method.getParameterTypes();
        int[] copies = new int[values.length];
        try {
            // Copies first: they call malloc, which may use the registers.
            for (int i = 0; i < values.length; i++) {
                copies[i] = copyIn(types[i], values[i]);
            }
            Abi.Writer writer = new Abi.Writer(t);
            for (int i = 0; i < values.length; i++) {
                write(writer, types[i], values[i], copies[i]);
            }
            long registers = guest.call(function, writer.words());
            Object result = Marshal.result(guest, registers, method.getReturnType());
            Annotation[][] annotations = method.getParameterAnnotations();
            for (int i = 0; i < values.length; i++) {
                if (copies[i] != 0 && types[i].isArray() && !isIn(annotations[i])) {
                    copyOut(values[i], copies[i]);
                }
            }
            return result;
        } finally {
            for (int copy : copies) {
                if (copy != 0) {
                    free(copy);
                }
            }
        }
    }

    private static boolean isIn(Annotation[] annotations) {
        for (Annotation annotation : annotations) {
            if (annotation instanceof In) {
                return true;
            }
        }
        return false;
    }

    /** Copies a string or an array to the guest; 0 for what needs none. */
    private int copyIn(Class<?> type, Object value) {
        if (value instanceof String) {
            return string((String) value);
        }
        int size = type.isArray() ? Marshal.elementSize(type) : 0;
        if (value == null || size == 0) {
            return 0;
        }
        int count = java.lang.reflect.Array.getLength(value);
        int address = malloc(Math.max(1, count * size));
        if (value instanceof byte[]) {
            System.arraycopy(value, 0, t.memory, address, count);
            return address;
        }
        for (int i = 0; i < count; i++) {
            store(address + i * size, java.lang.reflect.Array.get(value, i));
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
        } else {
            t.storeLong(address, Double.doubleToRawLongBits((Double) value));
        }
    }

    private void copyOut(Object array, int address) {
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

    private void write(Abi.Writer writer, Class<?> type, Object value, int copy) {
        if (type == long.class) {
            writer.addLong((Long) value);
        } else if (type == float.class) {
            writer.addFloat((Float) value);
        } else if (type == double.class) {
            writer.addDouble((Double) value);
        } else if (value == null || copy != 0) {
            writer.addInt(copy);
        } else if (value instanceof Boolean) {
            writer.addInt((Boolean) value ? 1 : 0);
        } else if (value instanceof Character) {
            writer.addInt((Character) value);
        } else if (type.isPrimitive()) {
            writer.addInt(((Number) value).intValue());
        } else if (Marshal.functional(type) != null) {
            writer.addInt(callback(type, value));
        } else {
            writer.addInt(guest.handles.add(value));
        }
    }

    /** A function pointer for an object of an interface with one method. */
    public synchronized int callback(Class<?> type, Object lambda) {
        Method method = Marshal.functional(type);
        if (method == null) {
            throw new IllegalArgumentException(type + " is no interface with one method");
        }
        method.setAccessible(true);
        Class<?>[] types = method.getParameterTypes();
        return callbacks.computeIfAbsent(
                lambda,
                key -> guest.callbacks.add((thread, sp, a0, a1, a2, a3) -> {
                    Abi.Reader reader = new Abi.Reader(
                            thread, sp, a0, a1, a2, a3, thread.f12, thread.f14);
                    Object[] arguments = new Object[types.length];
                    for (int i = 0; i < types.length; i++) {
                        arguments[i] = Marshal.read(guest, reader, types[i]);
                    }
                    return Marshal.result(thread, invokeCallback(method, lambda, arguments));
                }));
    }

    private static Object invokeCallback(Method method, Object lambda, Object[] arguments) {
        try {
            return method.invoke(lambda, arguments);
        } catch (InvocationTargetException e) {
            Throwable cause = e.getCause();
            if (cause instanceof RuntimeException) {
                throw (RuntimeException) cause;
            } else if (cause instanceof Error) {
                throw (Error) cause;
            }
            throw new GuestException("callback failed: " + cause, null, cause);
        } catch (IllegalAccessException e) {
            throw new GuestException("callback can't be called", null, e);
        }
    }

    /** The address of an exported function. */
    public int address(String name) {
        return guest.exports.address(name);
    }

    /** The guest itself, for calls by address. */
    public Guest guest() {
        return guest;
    }

    /** Objects that the guest holds by number. */
    public Handles handles() {
        return guest.handles;
    }

    /** Allocates guest memory. */
    public int malloc(int size) {
        int address = (int) guest.call(malloc, size);
        if (address == 0) {
            throw new GuestException(
                    "the guest's memory has no " + size + " bytes left: raise Options.memory",
                    null,
                    null);
        }
        return address;
    }

    public void free(int address) {
        guest.call(free, address);
    }

    /** Allocates a copy of a string as C has it. */
    public int string(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        int address = malloc(bytes.length + 1);
        System.arraycopy(bytes, 0, t.memory, address, bytes.length);
        t.memory[address + bytes.length] = 0;
        return address;
    }

    /** Reads a string of the guest. */
    public String string(int address) {
        return GuestException.text(t, address);
    }

    /** Copies bytes out of the guest's memory. */
    public byte[] bytes(int address, int length) {
        java.util.Objects.checkFromIndexSize(address, length, t.memory.length);
        return Arrays.copyOfRange(t.memory, address, address + length);
    }

    /** Copies bytes into the guest's memory. */
    public void write(int address, byte[] bytes) {
        System.arraycopy(bytes, 0, t.memory, address, bytes.length);
    }

    @Override
    public void close() throws IOException {
        guest.close();
    }
}
