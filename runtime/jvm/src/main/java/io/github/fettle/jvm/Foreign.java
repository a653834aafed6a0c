package io.github.fettle.jvm;

import java.util.Arrays;

/** Exceptions of Java in the frames of C++. */
final class Foreign {
    /** Where an {@code _Unwind_Exception} has what frees it, behind its name. */
    private static final int FREE = 8;

    private Foreign() {}

    /** What passes the guest's frames in place of an exception of Java that a callback threw. */
    static Error passing(GuestThread t, Throwable e) {
        if (e instanceof GuestException && e.getCause() instanceof GuestThrow) {
            GuestThrow inner = (GuestThrow) e.getCause();
            if (inner.guest == t.guest) {
                // It was one of C++ before: it is again.
                return inner;
            }
        }
        int exception = t.standIn(e);
        if (exception == 0) {
            return new GuestThrow(t.guest, 0, e, false);
        }
        int at = t.guest.index(exception);
        Arrays.fill(t.memory, at, at + 24, (byte) 0);
        byte[] name = {'F', 'T', 'T', 'L', 'J', 'A', 'V', 'A'};
        System.arraycopy(name, 0, t.memory, at, name.length);
        t.store(at + FREE, 0);
        return new GuestThrow(t.guest, exception, e, false);
    }
}
