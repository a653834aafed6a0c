package io.github.fettle.jvm;

/** What orders accesses of memory by several threads. */
public final class Fences {
    private static volatile int word;

    private Fences() {}

    /** What {@code sync} does: Java's memory model orders what surrounds volatile accesses. */
    public static void fullFence() {
        word = 1;
        if (word == 0) {
            throw new AssertionError();
        }
    }
}
