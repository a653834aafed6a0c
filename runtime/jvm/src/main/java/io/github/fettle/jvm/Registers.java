package io.github.fettle.jvm;

/** What translated code keeps in its thread, beside its locals. */
public abstract class Registers {
    /** What {@code rdhwr $29} reads: the thread pointer. */
    public int tls;

    /** The second result of a system call that has two ({@code pipe}). */
    public int v1;

    /** The static chain of a nested function that is called by its address. */
    public int chain;

    /** The stack pointer of a jump to a label of a function further up. */
    int landedStack;

    /** The first value for the landing pad that an exception has reached: the exception. */
    public int landed;

    /** What a landing pad that cleans up will send on: it knows where it was thrown. */
    GuestThrow passing;

    /** The floating-point control register. */
    public int fcsr;

    /**
     * Floating-point registers at calls by address: the bits of a double, or of a float in the low
     * word.
     */
    public long f0;

    public long f2;
    public long f10;
    public long f11;
    public long f12;
    public long f13;
    public long f14;
    public long f15;
    public long f16;
    public long f17;

    Registers() {}
}
