package io.github.fettle.jvm;

/** An exception of C++ on its way through translated frames. */
public final class GuestThrow extends Error {
    /** The address of the exception's {@code _Unwind_Exception}. */
    public final int exception;

    /** Its program, the only one there is. */
    final Guest guest;

    /** CLDC's exceptions have no cause, and always a stack trace. */
    GuestThrow(Guest guest, int exception, Throwable cause, boolean traced) {
        super("an exception of C++");
        this.guest = guest;
        this.exception = exception;
    }
}
