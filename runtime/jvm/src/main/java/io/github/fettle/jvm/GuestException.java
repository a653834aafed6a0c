package io.github.fettle.jvm;

import java.nio.charset.StandardCharsets;

/** What went wrong in a guest that Java called: a C++ exception, a fault, or its end. */
public final class GuestException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /**
     * Words before the {@code _Unwind_Exception} in libstdc++'s {@code __cxa_exception}: type,
     * destructor, two handlers, next, two counts, three of the personality's, adjusted pointer,
     * and one to align it to 8 bytes.
     */
    private static final int TYPE = -48;

    /** Bytes of {@code _Unwind_Exception}; the object follows. */
    private static final int HEADER = 24;

    /** The slot of {@code what} in the virtual table of {@code std::exception}. */
    private static final int WHAT = 8;

    private static final int MOST_BASES = 32;
    private static final int LONGEST_TEXT = 1 << 16;

    private final String cppType;
    private final String what;

    GuestException(String message, String cppType, Throwable cause) {
        this(message, cppType, null, cause);
    }

    private GuestException(String message, String cppType, String what, Throwable cause) {
        super(message, cause);
        this.cppType = cppType;
        this.what = what;
    }

    /** The type of the C++ exception, as {@code std::runtime_error}; null if it was none. */
    public String cppType() {
        return cppType;
    }

    /** What {@code what()} of the C++ exception says; null if it has none. */
    public String what() {
        return what;
    }

    /** Describes a C++ exception. It keeps the Java frames of the translated functions. */
    public static GuestException of(GuestThread t, GuestThrow thrown) {
        String type = null;
        String what = null;
        try {
            int header = thrown.exception;
            int info = t.load(header + TYPE);
            type = Demangler.type(text(t, t.load(info + 4)));
            int object = header + HEADER;
            if (isStandardException(t, info)) {
                int function = t.load(t.load(object) + WHAT);
                int sp = t.stackBase - (2 << 20);
                what = text(t, (int) t.guest.code.call(t, function, sp, object, 0, 0, 0));
            }
        } catch (IndexOutOfBoundsException e) {
            // A foreign exception has another header: then there is nothing to say of it.
        }
        String message = type == null ? "C++ exception" : what == null ? type : type + ": " + what;
        return new GuestException(message, type, what, thrown);
    }

    /** Follows single inheritance down to {@code std::exception}. */
    private static boolean isStandardException(GuestThread t, int info) {
        int single = 0;
        int type = info;
        for (int i = 0; i < MOST_BASES; i++) {
            if (text(t, t.load(type + 4)).equals("St9exception")) {
                return true;
            }
            int kind = t.load(type);
            if (single != 0 && kind != single) {
                return false;
            }
            single = kind;
            type = t.load(type + 8);
            if (type <= 0 || type >= t.memory.length - 12) {
                return false;
            }
        }
        return false;
    }

    /** The string at an address. */
    static String text(GuestThread t, int address) {
        int start = t.guest.index(address);
        int end = start;
        while (t.memory[end] != 0 && end - start < LONGEST_TEXT) {
            end++;
        }
        return new String(t.memory, start, end - start, StandardCharsets.UTF_8);
    }

    /** What libstdc++ prints before it calls {@code abort}. */
    String terminateMessage() {
        String first = "terminate called after throwing an instance of '"
                + (cppType == null ? "?" : cppType) + "'\n";
        return what == null ? first : first + "  what():  " + what + "\n";
    }
}
