package io.github.fettle.jvm;

/** The end of a thread on its way down the stack: landing pads clean up and send it on. */
final class ForcedUnwind extends GuestJump {
    /** The address of the {@code _Unwind_Exception}. */
    final int exception;

    ForcedUnwind(int exception, int buffer) {
        super(buffer, 1);
        this.exception = exception;
    }
}
