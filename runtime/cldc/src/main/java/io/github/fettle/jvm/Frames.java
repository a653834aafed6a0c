package io.github.fettle.jvm;

/**
 * Java's stack, which CLDC does not let anyone walk: an exception passes the frames, and each that handles it or
 * cleans up is asked on the way. An uncaught one ends the program only when it has passed all of them.
 */
final class Frames {
    private Frames() {}

    static Handler search(GuestThread t, int exception, int sp) {
        return Handler.GUEST;
    }
}
