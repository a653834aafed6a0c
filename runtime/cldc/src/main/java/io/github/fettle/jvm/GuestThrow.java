package io.github.fettle.jvm;

/** An exception of C++ on its way through translated frames. */
public final class GuestThrow extends Error {
    /** The address of the exception's {@code _Unwind_Exception}. */
    public final int exception;

    GuestThrow(int exception) {
        super("an exception of C++");
        this.exception = exception;
    }
}
