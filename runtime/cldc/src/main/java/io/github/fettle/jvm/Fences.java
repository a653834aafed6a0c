package io.github.fettle.jvm;

/** What orders accesses of memory by several threads: a program here has one. */
public final class Fences {
    private Fences() {}

    public static void fullFence() {}
}
