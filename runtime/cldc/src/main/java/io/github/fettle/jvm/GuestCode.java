package io.github.fettle.jvm;

/** The program's code, as something that can be called by address. */
public abstract class GuestCode {
    /**
     * Calls the function at an address and returns when it does.
     *
     * @return {@code v0 | v1 << 32}
     */
    public abstract long call(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3);

    /** Functions that Java calls: here none. */
    public String exports() {
        return "";
    }

    /** Whether words in memory have their most significant byte first. */
    public abstract boolean bigEndian();
}
