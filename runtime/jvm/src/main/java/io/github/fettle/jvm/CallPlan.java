package io.github.fettle.jvm;

import java.lang.annotation.Annotation;
import java.lang.reflect.Array;
import java.lang.reflect.Method;

/** How a method of an interface calls a function of C. */
final class CallPlan {
    private enum Kind {
        /** Java's argument; arrays are copied back. */
        VALUE,
        /** Java's argument, a byte or a short, as an integer without a sign. */
        UNSIGNED,
        /** Java's argument as a pointer that is only read. */
        POINTER,
        /** The length of an array. */
        LENGTH,
        /** A pointer to an array that the function fills. */
        OUTPUT,
        /** A pointer to that array's length. */
        OUTPUT_LENGTH
    }

    /** An argument of C. */
    private static final class Argument {
        final Kind kind;

        /** Which of Java's it is made of; of an output its capacity. */
        final int number;

        /** The function that knows a capacity, or 0; and the arguments of C that it gets. */
        final int capacity;

        final int[] given;

        Argument(Kind kind, int number, int capacity, int[] given) {
            this.kind = kind;
            this.number = number;
            this.capacity = capacity;
            this.given = given;
        }
    }

    private final String name;
    private final int function;
    private final Class<?>[] types;
    private final Class<?> result;
    private final Argument[] arguments;
    private final boolean checked;

    private CallPlan(Library library, Method method, Argument[] arguments, boolean checked) {
        name = method.getName();
        function = library.address(name);
        types = method.getParameterTypes();
        result = method.getReturnType();
        this.arguments = arguments;
        this.checked = checked;
    }

    static CallPlan of(Library library, Method method) {
        Prototype prototype = method.getAnnotation(Prototype.class);
        if (prototype == null) {
            Annotation[][] annotations = method.getParameterAnnotations();
            Argument[] arguments = new Argument[annotations.length];
            for (int i = 0; i < arguments.length; i++) {
                Kind kind = isIn(annotations[i]) ? Kind.POINTER : Kind.VALUE;
                arguments[i] = new Argument(kind, i, 0, null);
            }
            return new CallPlan(library, method, arguments, false);
        }
        String text = prototype.value();
        boolean checked = text.startsWith("! ");
        String rest = checked ? text.substring(2) : text;
        String[] words = rest.isEmpty() ? new String[0] : rest.split(" ");
        Argument[] arguments = new Argument[words.length];
        for (int i = 0; i < words.length; i++) {
            arguments[i] = argument(library, words[i]);
        }
        return new CallPlan(library, method, arguments, checked);
    }

    private static boolean isIn(Annotation[] annotations) {
        for (Annotation annotation : annotations) {
            if (annotation instanceof In) {
                return true;
            }
        }
        return false;
    }

    private static Argument argument(Library library, String word) {
        String rest = word.substring(1);
        switch (word.charAt(0)) {
            case 'u':
                return new Argument(Kind.UNSIGNED, Integer.parseInt(rest), 0, null);
            case '<':
                return new Argument(Kind.POINTER, Integer.parseInt(rest), 0, null);
            case '#':
                return new Argument(Kind.LENGTH, Integer.parseInt(rest), 0, null);
            case '+':
                return output(library, rest);
            default:
                return new Argument(Kind.VALUE, Integer.parseInt(word), 0, null);
        }
    }

    private static Argument output(Library library, String capacity) {
        int open = capacity.indexOf('(');
        if (capacity.equals("#")) {
            return new Argument(Kind.OUTPUT_LENGTH, 0, 0, null);
        } else if (open < 0) {
            return new Argument(Kind.OUTPUT, Integer.parseInt(capacity), 0, null);
        }
        String[] places = capacity.substring(open + 1, capacity.length() - 1).split(",");
        int[] given = new int[places.length];
        for (int i = 0; i < given.length; i++) {
            given[i] = Integer.parseInt(places[i]);
        }
        int function = library.address(capacity.substring(0, open));
        return new Argument(Kind.OUTPUT, 0, function, given);
    }

    /** Calls the function. */
    Object call(Library library, Object[] values) {
        try (Copies copies = new Copies(library)) {
            return call(library, copies, values);
        }
    }

    private Object call(Library library, Copies copies, Object[] values) {
        Guest guest = library.guest();
        GuestThread t = guest.thread();
        int[] pointers = new int[arguments.length];
        int size = result.isArray() ? Marshal.elementSize(result) : 0;
        int output = 0;
        int cell = 0;
        int area = Platform.isRecord(result) ? copies.allocate(Math.max(8, Copies.size(result))) : 0;
        // Copies first: they call malloc, which may use the registers.
        for (int i = 0; i < arguments.length; i++) {
            Argument argument = arguments[i];
            switch (argument.kind) {
                case VALUE:
                case POINTER:
                    pointers[i] = copies.in(types[argument.number], values[argument.number]);
                    break;
                case OUTPUT_LENGTH:
                    cell = copies.allocate(8);
                    pointers[i] = cell;
                    break;
                default:
                    break;
            }
        }
        for (int i = 0; i < arguments.length; i++) {
            if (arguments[i].kind == Kind.OUTPUT) {
                int capacity = capacity(guest, arguments[i], values);
                output = copies.allocate(Math.multiplyExact(capacity, size));
                pointers[i] = output;
                t.store(guest.index(cell), capacity);
            }
        }
        Abi.Writer writer = guest.abi.writer(t);
        boolean inMemory = area != 0 && guest.abi.returnsInMemory(result);
        if (inMemory) {
            writer.addInt(area);
        }
        for (int i = 0; i < arguments.length; i++) {
            Argument argument = arguments[i];
            if (argument.kind == Kind.VALUE || argument.kind == Kind.POINTER) {
                Class<?> type = types[argument.number];
                if (argument.kind == Kind.VALUE && Platform.isRecord(type)) {
                    writer.addStructure(type, pointers[i]);
                } else {
                    add(library, writer, type, values[argument.number], pointers[i]);
                }
            } else if (argument.kind == Kind.UNSIGNED) {
                writer.addInt(unsigned(values[argument.number]));
            } else if (argument.kind == Kind.LENGTH) {
                writer.addInt(length(values[argument.number]));
            } else {
                writer.addInt(pointers[i]);
            }
        }
        long registers = guest.call(function, writer.words());
        for (int i = 0; i < arguments.length; i++) {
            Argument argument = arguments[i];
            boolean back = argument.kind == Kind.VALUE && pointers[i] != 0;
            if (back && types[argument.number].isArray()) {
                copies.out(values[argument.number], pointers[i]);
            }
        }
        if (output != 0) {
            return filled(copies, t, registers, output, cell);
        }
        if (area == 0) {
            return Marshal.result(guest, registers, result);
        } else if (!inMemory) {
            guest.abi.storeStructure(t, registers, result, area);
        }
        return copies.read(result, area);
    }

    private Object filled(Copies copies, GuestThread t, long registers, int output, int cell) {
        if (checked && (int) registers != 0) {
            throw new GuestException(name + " returned " + (int) registers, null, null);
        }
        int length = t.load(t.guest.index(cell));
        if (length < 0 || length > t.memory.length) {
            throw new GuestException(name + " filled " + length + " elements", null, null);
        }
        Object array = Array.newInstance(result.getComponentType(), length);
        copies.out(array, output);
        return array;
    }

    private int capacity(Guest guest, Argument output, Object[] values) {
        if (output.capacity == 0) {
            return output.number;
        }
        int[] given = new int[output.given.length];
        for (int i = 0; i < given.length; i++) {
            Argument argument = arguments[output.given[i]];
            Object value = values[argument.number];
            given[i] = argument.kind == Kind.LENGTH ? length(value) : ((Number) value).intValue();
        }
        return (int) guest.call(output.capacity, given);
    }

    private static int unsigned(Object value) {
        int number = ((Number) value).intValue();
        return value instanceof Byte ? number & 0xff : number & 0xffff;
    }

    private static int length(Object array) {
        return array == null ? 0 : Array.getLength(array);
    }

    private static void add(
            Library library, Abi.Writer writer, Class<?> type, Object value, int copy) {
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
            writer.addInt(library.callback(type, value));
        } else {
            writer.addInt(library.handles().add(value));
        }
    }
}
