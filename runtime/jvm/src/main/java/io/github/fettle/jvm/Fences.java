package io.github.fettle.jvm;

import java.lang.invoke.VarHandle;

/** What orders accesses of memory by several threads. */
public final class Fences {
    private Fences() {}

    /** What {@code sync} does. */
    public static void fullFence() {
        VarHandle.fullFence();
    }
}
