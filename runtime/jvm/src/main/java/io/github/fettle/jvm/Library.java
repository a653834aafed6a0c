package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

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

    private final Map<Method, CallPlan> plans = new ConcurrentHashMap<>();

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

    /**
     * Starts an instance of translated code that has {@code image.elf} beside it, as an interface that
     * the translator wrote.
     */
    public static Object openAs(GuestCode code, Options options, Class<?> type) {
        try (InputStream image = code.getClass().getResourceAsStream("image.elf")) {
            if (image == null) {
                throw new IOException("image.elf is not beside " + code.getClass().getName());
            }
            return open(code, image, options).as(type);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
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
                || method.getName().equals("close") && method.getParameterCount() == 0
                || method.getReturnType() == Library.class
                || Modifier.isStatic(method.getModifiers());
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
        if (isOwn(method) && method.getReturnType() == Library.class) {
            return this;
        } else if (isOwn(method) && !guest.exports.has("close")) {
            closeUnchecked();
            return null;
        }
        if (method.isDefault()) {
            return Platform.invokeDefault(proxy, method, arguments);
        }
        Object[] values = arguments == null ? new Object[0] : arguments;
        return plans.computeIfAbsent(method, m -> CallPlan.of(this, m)).call(this, values);
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
                    Abi.Reader reader = guest.abi.reader(thread, sp, a0, a1, a2, a3);
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
        int at = guest.index(address);
        System.arraycopy(bytes, 0, t.memory, at, bytes.length);
        t.memory[at + bytes.length] = 0;
        return address;
    }

    /** Reads a string of the guest. */
    public String string(int address) {
        return GuestException.text(t, address);
    }

    /** Copies bytes out of the guest's memory. */
    public byte[] bytes(int address, int length) {
        int at = guest.index(address);
        java.util.Objects.checkFromIndexSize(at, length, t.memory.length);
        return Arrays.copyOfRange(t.memory, at, at + length);
    }

    /** Copies bytes into the guest's memory. */
    public void write(int address, byte[] bytes) {
        System.arraycopy(bytes, 0, t.memory, guest.index(address), bytes.length);
    }

    private void closeUnchecked() {
        try {
            close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() throws IOException {
        guest.close();
    }
}
