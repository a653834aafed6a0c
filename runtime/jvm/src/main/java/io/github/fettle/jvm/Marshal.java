package io.github.fettle.jvm;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/** Values between Java's types and the guest's, for calls in both directions. */
final class Marshal {
    private Marshal() {}

    /** Reads an argument that the guest passes to Java. */
    static Object read(Guest guest, Abi.Reader reader, Class<?> type) {
        if (type == long.class) {
            return reader.nextLong();
        } else if (type == float.class) {
            return reader.nextFloat();
        } else if (type == double.class) {
            return reader.nextDouble();
        }
        int word = reader.nextInt();
        if (type == int.class) {
            return word;
        } else if (type == boolean.class) {
            return word != 0;
        } else if (type == byte.class) {
            return (byte) word;
        } else if (type == short.class) {
            return (short) word;
        } else if (type == char.class) {
            return (char) word;
        } else if (type == String.class) {
            return word == 0 ? null : GuestException.text(guest.thread(), word);
        }
        return type.cast(guest.handles.get(word));
    }

    /** The registers of a result that Java gives to the guest; floating-point ones are set beside. */
    static long result(GuestThread t, Object value) {
        if (value == null) {
            return 0;
        } else if (value instanceof Boolean) {
            return (Boolean) value ? 1 : 0;
        } else if (value instanceof Character) {
            return (Character) value;
        } else if (value instanceof Float) {
            return t.guest.abi.ofFloat(t, (Float) value);
        } else if (value instanceof Double) {
            return t.guest.abi.ofDouble(t, (Double) value);
        } else if (value instanceof Long) {
            return t.guest.abi.ofLong(t, (Long) value);
        } else if (value instanceof Number) {
            return ((Number) value).intValue() & 0xffff_ffffL;
        }
        return t.guest.handles.add(value) & 0xffff_ffffL;
    }

    /** Takes a result that the guest gives to Java. */
    static Object result(Guest guest, long registers, Class<?> type) {
        GuestThread t = guest.thread();
        int word = (int) registers;
        if (type == void.class) {
            return null;
        } else if (type == int.class) {
            return word;
        } else if (type == long.class) {
            return guest.abi.toLong(t, registers);
        } else if (type == float.class) {
            return guest.abi.toFloat(t, registers);
        } else if (type == double.class) {
            return guest.abi.toDouble(t, registers);
        } else if (type == boolean.class) {
            return word != 0;
        } else if (type == byte.class) {
            return (byte) word;
        } else if (type == short.class) {
            return (short) word;
        } else if (type == char.class) {
            return (char) word;
        } else if (type == String.class) {
            return word == 0 ? null : GuestException.text(t, word);
        }
        return type.cast(guest.handles.get(word));
    }

    /** The one method that a lambda of this type implements, or null. */
    static Method functional(Class<?> type) {
        Method found = null;
        if (!type.isInterface()) {
            return null;
        }
        for (Method method : type.getMethods()) {
            if (Modifier.isAbstract(method.getModifiers())) {
                if (found != null) {
                    return null;
                }
                found = method;
            }
        }
        return found;
    }

    /** Elements of an array that can be copied to the guest: bytes of one, or 0. */
    static int elementSize(Class<?> array) {
        Class<?> element = array.getComponentType();
        if (element == byte.class) {
            return 1;
        } else if (element == short.class || element == char.class) {
            return 2;
        } else if (element == int.class || element == float.class) {
            return 4;
        } else if (element == long.class || element == double.class) {
            return 8;
        }
        return 0;
    }
}
