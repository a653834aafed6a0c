package io.github.fettle.jvm;

/**
 * Exceptions of C++ in translated code, in two phases as everywhere: the first looks for a handler
 * and leaves the stack alone, the second goes there and cleans up on the way.
 *
 * <p>The frames are Java's. The first phase walks them ({@link Frames}); for the second a Java exception passes
 * them, and each that cleans up or handles catches it. What a frame does with an exception is said
 * by the guest's own personality function, which gets a context as libgcc lays it out. See the
 * "Exception Handling ABI for C++", level 1.
 */
public final class Unwinder {
    private static final int SEARCH = 1;
    private static final int CLEANUP = 2;
    private static final int HANDLER = 4;
    private static final int FORCE = 8;
    private static final int END_OF_STACK_ACTION = 16;

    private static final int END_OF_STACK = 5;
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

    private Unwinder() {}

    // What stands for libgcc's functions.

    /** {@code _Unwind_RaiseException}: returns only if no frame handles the exception. */
    public static int raise(GuestThread t, int exception, int sp) {
        t.store(exception + STOP, 0);
        Handler handler = Frames.search(t, exception, sp);
        if (handler == Handler.NONE) {
            return END_OF_STACK;
        }
        throw thrown(t, exception, handler == Handler.JAVA);
    }

    /** {@code _Unwind_Resume}: a landing pad has cleaned up. */
    public static void resume(GuestThread t, int exception) {
        if (t.load(exception + STOP) != 0) {
            throw new ForcedUnwind(exception, t.load(exception + STOP_ARGUMENT));
        }
        GuestThrow passing = t.passing;
        boolean same = passing != null && passing.exception == exception;
        throw same ? passing : thrown(t, exception, false);
    }

    /** {@code _Unwind_Resume_or_Rethrow}: what {@code throw;} calls. */
    public static int rethrow(GuestThread t, int exception, int sp) {
        if (t.load(exception + STOP) != 0) {
            resume(t, exception);
        }
        return raise(t, exception, sp);
    }

    /**
     * {@code _Unwind_ForcedUnwind}: how a thread ends by itself or is cancelled.
     *
     * <p>The stop function is asked once, as at the end of the stack: it undoes what the innermost
     * frames registered and jumps to the buffer that is its argument, which here is done by what
     * passes the frames.
     */
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

    // What translated code calls when it has caught something.

    /**
     * Says what a frame does with an exception that has passed one of its calls.
     *
     * @param pc the call
     * @return the second value for the landing pad; the first is in {@link GuestThread#landed}. Throws
     *     the exception again if the frame does nothing
     */
    public static int land(GuestThread t, Throwable passing, int pc, int sp) {
        int exception;
        int actions;
        if (passing instanceof GuestThrow && ((GuestThrow) passing).guest == t.guest) {
            exception = ((GuestThrow) passing).exception;
            boolean handled = handles(t, exception, pc, sp);
            actions = handled ? CLEANUP | HANDLER : CLEANUP;
            t.passing = handled ? null : (GuestThrow) passing;
        } else if (passing instanceof ForcedUnwind) {
            exception = ((ForcedUnwind) passing).exception;
            actions = CLEANUP | FORCE;
        } else {
            throw Unwinder.<RuntimeException>sneak(passing);
        }
        if (ask(t, actions, exception, pc, sp) != INSTALL_CONTEXT) {
            throw Unwinder.<RuntimeException>sneak(passing);
        }
        int context = context(sp);
        t.landed = t.load(context + A0 * 4);
        return t.load(context + A1 * 4);
    }

    private static GuestThrow thrown(GuestThread t, int exception, boolean traced) {
        return new GuestThrow(t.guest, exception, t.standsFor(exception), traced);
    }

    /** Throws what nothing here may declare. */
    @SuppressWarnings("unchecked")
    static <T extends Throwable> T sneak(Throwable e) throws T {
        throw (T) e;
    }

    // The guest's personality.

    /** Whether a frame has a handler for an exception, by the call that it is in. */
    static boolean handles(GuestThread t, int exception, int pc, int sp) {
        return ask(t, SEARCH, exception, pc, sp) == HANDLER_FOUND;
    }

    private static int ask(GuestThread t, int actions, int exception, int pc, int sp) {
        Region region = t.guest.unwindTables().region(pc);
        if (region == null || exception == 0) {
            return 0;
        }
        int context = context(sp);
        t.clear(context, context + CONTEXT_SIZE);
        t.store(context + CFA, sp);
        t.store(context + RETURN_ADDRESS, pc + 8);
        t.store(context + AREA, region.area);
        t.store(context + REGION, region.start);
        t.store(context + FLAGS, EXTENDED);
        t.storeByte(context + BY_VALUE + A0, 1);
        t.storeByte(context + BY_VALUE + A1, 1);
        int frame = frame(t, context, exception, 0);
        int first = t.load(exception);
        int second = t.load(exception + 4);
        return (int)
                t.guest.code.call(t, region.personality, frame, 1, actions, first, second);
    }

    /** Below everything that the guest has on its stack. */
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
