package io.github.fettle.jvm;

/** Unwinds every frame because the program ended. */
public final class GuestExit extends Error {
    /** The argument of {@code exit}, 0 to 255; with a signal, 128 plus the host's number of it. */
    public final int status;

    GuestExit(int status) {
        super("the program has ended");
        this.status = status;
    }
}
