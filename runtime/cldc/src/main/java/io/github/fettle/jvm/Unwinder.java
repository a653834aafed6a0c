package io.github.fettle.jvm;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;

/**
 * Exceptions of C++ in translated code.
 *
 * <p>CLDC cannot walk its stack, so that there is no phase that looks for a handler before anything is
 * cleaned up: the exception passes frame after frame, and each that handles or cleans up is asked.
 * An uncaught one ends the program only when it has passed all of them.
 */
public final class Unwinder {
    private static final int SEARCH = 1;
    private static final int CLEANUP = 2;
    private static final int HANDLER = 4;
    private static final int FORCE = 8;
    private static final int END_OF_STACK_ACTION = 16;

    private static final int HANDLER_FOUND = 6;
    private static final int INSTALL_CONTEXT = 7;

    /** Of {@code _Unwind_Exception}: two words of the unwinder. */
    private static final int STOP = 12;

    private static final int STOP_ARGUMENT = 16;

    /** libgcc's {@code _Unwind_Context} of MIPS: 189 registers, what follows them, its size. */
    private static final int CFA = 756;

    private static final int RETURN_ADDRESS = 760;
    private static final int AREA = 764;
    private static final int REGION = 776;
    private static final int FLAGS = 780;
    private static final int BY_VALUE = 792;
    private static final int CONTEXT_SIZE = 984;

    /** The context says of each register whether its value or its place is there. */
    private static final int EXTENDED = 1 << 30;

    private static final int A0 = 4;
    private static final int A1 = 5;

    /** Words of a region: its start, its end, its data area, its personality. */
    private static final int WORDS = 4;

    private Unwinder() {}

    /** {@code _Unwind_RaiseException}. */
    public static int raise(GuestThread t, int exception, int sp) {
        t.store(exception + STOP, 0);
        throw new GuestThrow(exception);
    }

    /** {@code _Unwind_Resume}: a landing pad has cleaned up. */
    public static void resume(GuestThread t, int exception) {
        if (t.load(exception + STOP) != 0) {
            throw new ForcedUnwind(exception, t.load(exception + STOP_ARGUMENT));
        }
        GuestThrow passing = t.passing;
        throw passing != null && passing.exception == exception
                ? passing
                : new GuestThrow(exception);
    }

    /** {@code _Unwind_Resume_or_Rethrow}: what {@code throw;} calls. */
    public static int rethrow(GuestThread t, int exception, int sp) {
        if (t.load(exception + STOP) != 0) {
            resume(t, exception);
        }
        return raise(t, exception, sp);
    }

    /** {@code _Unwind_ForcedUnwind}: how a thread ends by itself. */
    public static void force(GuestThread t, int exception, int stop, int argument, int sp) {
        t.store(exception + STOP, stop);
        t.store(exception + STOP_ARGUMENT, argument);
        int context = context(sp);
        t.clear(context, context + CONTEXT_SIZE);
        t.store(context + CFA, sp);
        int frame = frame(t, context, exception, argument);
        int actions = CLEANUP | FORCE | END_OF_STACK_ACTION;
        try {
            int first = t.load(exception);
            t.guest.code.call(t, stop, frame, 1, actions, first, t.load(exception + 4));
        } catch (GuestJump arrived) {
            if (arrived.buffer != argument) {
                throw arrived;
            }
        }
        throw new ForcedUnwind(exception, argument);
    }

    /**
     * Says what a frame does with an exception that has passed one of its calls.
     *
     * @param pc the call
     * @return the second value for the landing pad; the first is in {@link GuestThread#landed}.
     *     Throws the exception again if the frame does nothing
     */
    public static int land(GuestThread t, Throwable passing, int pc, int sp) {
        int exception;
        int actions;
        if (passing instanceof GuestThrow) {
            exception = ((GuestThrow) passing).exception;
            boolean handled = ask(t, SEARCH, exception, pc, sp) == HANDLER_FOUND;
            actions = handled ? CLEANUP | HANDLER : CLEANUP;
            t.passing = handled ? null : (GuestThrow) passing;
        } else if (passing instanceof ForcedUnwind) {
            exception = ((ForcedUnwind) passing).exception;
            actions = CLEANUP | FORCE;
        } else {
            throw same(passing);
        }
        if (ask(t, actions, exception, pc, sp) != INSTALL_CONTEXT) {
            throw same(passing);
        }
        int context = context(sp);
        t.landed = t.load(context + A0 * 4);
        return t.load(context + A1 * 4);
    }

    /** What translated code caught is no checked exception: nothing there throws one. */
    static Error same(Throwable passing) {
        if (passing instanceof RuntimeException) {
            throw (RuntimeException) passing;
        }
        return (Error) passing;
    }

    // The program's personality.

    private static int ask(GuestThread t, int actions, int exception, int pc, int sp) {
        int[] regions = t.guest.regions();
        int at = 0;
        while (at < regions.length && (pc < regions[at] || pc >= regions[at + 1])) {
            at += WORDS;
        }
        if (at == regions.length) {
            return 0;
        }
        int context = context(sp);
        t.clear(context, context + CONTEXT_SIZE);
        t.store(context + CFA, sp);
        t.store(context + RETURN_ADDRESS, pc + 8);
        t.store(context + AREA, regions[at + 2]);
        t.store(context + REGION, regions[at]);
        t.store(context + FLAGS, EXTENDED);
        t.storeByte(context + BY_VALUE + A0, 1);
        t.storeByte(context + BY_VALUE + A1, 1);
        int frame = frame(t, context, exception, 0);
        int first = t.load(exception);
        int second = t.load(exception + 4);
        return (int) t.guest.code.call(t, regions[at + 3], frame, 1, actions, first, second);
    }

    /** What the translator left beside the classes: which code handles exceptions. */
    static int[] regions(GuestCode code) {
        InputStream resource = code.getClass().getResourceAsStream("unwind.bin");
        if (resource == null) {
            return new int[0];
        }
        try {
            DataInputStream in = new DataInputStream(resource);
            int[] regions = new int[in.readInt() * WORDS];
            for (int i = 0; i < regions.length; i++) {
                regions[i] = in.readInt();
            }
            return regions;
        } catch (IOException e) {
            throw new Error("the jar's unwind.bin is damaged");
        }
    }

    /** Below everything that the program has on its stack. */
    private static int context(int sp) {
        return sp - CONTEXT_SIZE & -16;
    }

    /** The arguments on the stack: exception, context, what a stop function is given besides. */
    private static int frame(GuestThread t, int context, int exception, int argument) {
        int frame = context - 32;
        t.store(frame + 16, exception);
        t.store(frame + 20, context);
        t.store(frame + 24, argument);
        return frame;
    }
}
