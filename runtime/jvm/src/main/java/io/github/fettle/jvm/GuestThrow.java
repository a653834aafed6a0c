package io.github.fettle.jvm;

/**
 * An exception on its way through translated frames: one of C++, or one of Java with a stand-in of
 * C++ for those frames.
 */
public final class GuestThrow extends Error {
    private static final long serialVersionUID = 1;

    /** The guest address of the exception's {@code _Unwind_Exception}. */
    public final int exception;

    /** Only this guest knows the exception. */
    final transient Guest guest;

    /**
     * @param cause the exception of Java that it stands for, or null
     * @param traced whether Java code will see where it was thrown
     */
    GuestThrow(Guest guest, int exception, Throwable cause, boolean traced) {
        super(null, cause, false, traced);
        this.guest = guest;
        this.exception = exception;
    }
}
