package io.github.fettle.jvm;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.HashMap;
import java.util.Map;

/**
 * Java methods that the guest calls: each is named by a record in its memory, whose address is the
 * number of a system call.
 *
 * <p>Only classes that the embedding program named are reachable: a guest that could name any
 * would be no sandbox.
 */
final class Imports {
    /** Linux's numbers end far below. */
    static final int FIRST = 0x10000;

    /** The record: class, method, and whether floating-point registers are passed. */
    private static final class Target {
        final MethodHandle handle;
        final Class<?>[] types;
        final boolean floats;

        Target(MethodHandle handle, Class<?>[] types, boolean floats) {
            this.handle = handle;
            this.types = types;
            this.floats = floats;
        }
    }

    private final Guest guest;
    private final Map<Integer, Target> targets = new HashMap<>();

    Imports(Guest guest) {
        this.guest = guest;
    }

    /** Calls the method of a record. What it throws passes through the guest's frames. */
    long call(GuestThread t, int record, int a0, int a1, int a2, int a3, int sp) {
        Target target = target(t, record);
        long f12 = target.floats ? t.loadLong(sp) : 0;
        long f14 = target.floats ? t.loadLong(sp + 8) : 0;
        Abi.Reader reader = new O32.Arguments(t, sp, a0, a1, a2, a3, f12, f14);
        Object[] arguments = new Object[target.types.length];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = Marshal.read(guest, reader, target.types[i]);
        }
        Object value;
        int before = guest.enter(t, sp);
        try {
            value = target.handle.invokeWithArguments(arguments);
        } catch (RuntimeException | AssertionError e) {
            throw Foreign.passing(t, e);
        } catch (Error e) {
            throw e;
        } catch (Throwable e) {
            Throwable checked =
                    new GuestException("Java method called by the guest failed: " + e, null, e);
            throw Foreign.passing(t, checked);
        } finally {
            guest.leave(before);
        }
        long result = Marshal.result(t, value);
        if (target.floats) {
            t.storeLong(sp, t.f0);
        }
        t.v1 = (int) (result >>> 32);
        return result & 0xffff_ffffL;
    }

    private synchronized Target target(GuestThread t, int record) {
        Target known = targets.get(record);
        if (known != null) {
            return known;
        }
        String type = GuestException.text(t, t.load(record));
        String name = GuestException.text(t, t.load(record + 4));
        boolean floats = t.load(record + 8) != 0;
        Target found = find(type, name, floats);
        targets.put(record, found);
        return found;
    }

    private Target find(String type, String name, boolean floats) {
        for (Class<?> granted : guest.options.imports) {
            if (!granted.getName().equals(type)) {
                continue;
            }
            for (Method method : granted.getMethods()) {
                if (method.getName().equals(name) && Modifier.isStatic(method.getModifiers())) {
                    return target(method, floats);
                }
            }
        }
        throw new GuestException(
                "the guest calls " + type + "." + name + ": no public static method of a class"
                        + " given to Options.imports has this name",
                null,
                null);
    }

    private static Target target(Method method, boolean floats) {
        try {
            MethodHandle handle = MethodHandles.publicLookup().unreflect(method);
            return new Target(handle, method.getParameterTypes(), floats);
        } catch (IllegalAccessException e) {
            throw new GuestException(method + " can't be called by the guest", null, e);
        }
    }
}
