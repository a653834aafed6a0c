package io.github.fettle.jvm;

/** The guest's code, as something that can be called by address: translated or interpreted. */
public abstract class GuestCode {
    /**
     * Calls the function at an address and returns when it does.
     *
     * <p>Thread starts, signal handlers and callbacks from Java come this way. Arguments from the
     * fifth on are where the calling convention has them.
     *
     * @return {@code v0 | v1 << 32}
     */
    public abstract long call(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3);

    /** What the translator exports: names and addresses in hexadecimal digits. */
    public String exports() {
        return "";
    }

    /** One past the last address that a program without a kernel uses; otherwise 0. */
    public int memoryTop() {
        return 0;
    }

    /** Whether words in memory have their most significant byte first. */
    public abstract boolean bigEndian();
}
