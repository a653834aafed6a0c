package io.github.fettle.jvm;

/** A {@code longjmp} on its way to the frame that called {@code setjmp} with the same buffer. */
public class GuestJump extends Error {
    /** The address of the {@code jmp_buf}. */
    public final int buffer;

    /** What {@code setjmp} is to return; never 0. */
    public final int value;

    /** Another number that may tell the frame. */
    private final int other;

    public GuestJump(int buffer, int value) {
        this(buffer, buffer, value);
    }

    /** A jump to a label of a frame that is known by one of two numbers. */
    GuestJump(int buffer, int other, int value) {
        super("longjmp to a frame that is not there");
        this.buffer = buffer;
        this.other = other;
        this.value = value == 0 ? 1 : value;
    }

    /** Whether it is a jump to what this number tells. */
    public final boolean isTo(int number) {
        return number == buffer || number == other;
    }
}
