package io.github.fettle.jvm;

/**
 * Unwinds every Java frame of a guest thread because the guest ended.
 *
 * <p>An Error, so that no handler for guest exceptions catches it; without a stack trace, because
 * it is control flow.
 */
public final class GuestExit extends Error {
    private static final long serialVersionUID = 1;

    /** The argument of {@code exit}, 0 to 255; with a signal, 128 plus the host's number of it. */
    public final int status;

    /** The guest's number of the signal that ended it, or 0. */
    public final int signal;

    GuestExit(int status, int signal) {
        super("guest exit status " + status, null, false, false);
        this.status = status;
        this.signal = signal;
    }
}
