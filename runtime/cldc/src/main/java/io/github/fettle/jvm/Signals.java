package io.github.fettle.jvm;

/** Signals that a program sends itself, and faults. */
public final class Signals {
    static final int ABRT = 6;
    private static final int TRAP = 5;
    private static final int FPE = 8;
    private static final int SEGV = 11;

    /** Trap codes of a division by zero and of an overflow. */
    private static final int BREAK_OVERFLOW = 6;

    private static final int BREAK_DIVIDE = 7;

    /** Ignored if there is no handler: SIGCHLD, SIGWINCH, SIGURG, SIGCONT. */
    private static final long IGNORED = 1L << 18 | 1L << 20 | 1L << 21 | 1L << 25;

    /** By number: 0 for the default, 1 to ignore it, else the handler. */
    private final int[] handlers = new int[129];

    /** {@code rt_sigaction}: of the flags and the mask nothing is kept. */
    int action(GuestThread t, int signal, int action, int old) {
        if (signal < 1 || signal >= handlers.length) {
            return Kernel.INVALID;
        }
        if (old != 0) {
            t.clear(old, old + 24);
            t.store(old + 4, handlers[signal]);
        }
        if (action != 0) {
            handlers[signal] = t.load(action + 4);
        }
        return 0;
    }

    /** Runs the handler, or ends the program if that is what the signal does. */
    int raise(GuestThread t, int signal, int sp) {
        if (signal < 0 || signal >= handlers.length) {
            return Kernel.INVALID;
        }
        int handler = handlers[signal];
        if (handler != 0 && handler != 1) {
            t.guest.code.call(t, handler, sp - 256 & -16, signal, 0, 0, 0);
        } else if (handler == 0 && signal != 0 && (signal > 63 || (IGNORED >>> signal & 1) == 0)) {
            throw new GuestExit(128 + signal);
        }
        return 0;
    }

    /** Handles an exception of Java that stands for a fault. Does not return. */
    public static Error fault(GuestThread t, Throwable cause, int sp) {
        if (cause instanceof IndexOutOfBoundsException) {
            return end(t, SEGV, sp);
        } else if (cause instanceof ArithmeticException) {
            return end(t, FPE, sp);
        }
        throw Unwinder.<RuntimeException>sneak(cause);
    }

    /** Handles {@code break} and a trap instruction that held. Does not return. */
    public static Error trap(GuestThread t, int code, int sp) {
        return end(t, code == BREAK_DIVIDE || code == BREAK_OVERFLOW ? FPE : TRAP, sp);
    }

    private static Error end(GuestThread t, int signal, int sp) {
        t.guest.signals.raise(t, signal, sp);
        return new GuestExit(128 + signal);
    }
}
