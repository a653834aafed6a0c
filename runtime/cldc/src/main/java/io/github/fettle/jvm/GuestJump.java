package io.github.fettle.jvm;

/** A {@code longjmp} on its way to the frame that called {@code setjmp} with the same buffer. */
public class GuestJump extends Error {
    /** The address of the {@code jmp_buf}. */
    public final int buffer;

    /** What {@code setjmp} is to return; never 0. */
    public final int value;

    public GuestJump(int buffer, int value) {
        super("longjmp to a frame that is not there");
        this.buffer = buffer;
        this.value = value == 0 ? 1 : value;
    }
}
