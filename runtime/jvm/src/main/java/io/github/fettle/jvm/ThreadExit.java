package io.github.fettle.jvm;

/** Unwinds the Java frames of one guest thread that called {@code exit}. */
final class ThreadExit extends Error {
    private static final long serialVersionUID = 1;

    final int status;

    ThreadExit(int status) {
        super(null, null, false, false);
        this.status = status;
    }
}
