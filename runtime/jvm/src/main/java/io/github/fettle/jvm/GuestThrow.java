package io.github.fettle.jvm;

/** A C++ exception on its way through translated frames. */
public final class GuestThrow extends Error {
    private static final long serialVersionUID = 1;

    /** The guest address of the exception's {@code _Unwind_Exception}. */
    public final int exception;

    public GuestThrow(int exception) {
        super(null, null, false, false);
        this.exception = exception;
    }
}
