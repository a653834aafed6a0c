package io.github.fettle.jvm;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Signals that a guest sends itself, by {@code kill}, by a timer, or by a fault.
 *
 * <p>A handler runs as a call of the guest's function on the guest's stack, when the thread makes
 * a system call or polls. Java has no way to stop a thread between two instructions, and a
 * program can't tell the difference.
 */
public final class Signals {
    static final int ILL = 4;
    static final int TRAP = 5;
    static final int ABRT = 6;
    static final int FPE = 8;
    static final int KILL = 9;
    static final int SEGV = 11;
    static final int SYS = 12;
    static final int PIPE = 13;
    static final int ALRM = 14;
    static final int TERM = 15;
    static final int CHLD = 18;
    static final int WINCH = 20;
    static final int URG = 21;
    static final int STOP = 23;
    static final int TTOU = 27;
    static final int VTALRM = 28;
    static final int PROF = 29;
    static final int XCPU = 30;
    static final int LAST = 127;

    static final int SI_USER = 0;
    static final int SI_KERNEL = 0x80;
    static final int SI_TKILL = -6;

    /** {@code si_code} of an integer division by zero, and of an unmapped address. */
    private static final int FPE_INTDIV = 1;

    private static final int FPE_INTOVF = 2;
    private static final int SEGV_MAPERR = 1;

    /** Codes of {@code break} and {@code teq}. */
    private static final int BREAK_OVERFLOW = 6;

    private static final int BREAK_DIVIDE = 7;

    private static final int SIG_DFL = 0;
    private static final int SIG_IGN = 1;

    private static final int SA_SIGINFO = 8;
    private static final int SA_ONSTACK = 0x0800_0000;
    private static final int SA_RESTART = 0x1000_0000;
    private static final int SA_NODEFER = 0x4000_0000;
    private static final int SA_RESETHAND = 0x8000_0000;

    /** Layout of the frame that a handler gets: arguments, {@code siginfo_t}, {@code ucontext_t}. */
    private static final int FRAME_INFO = 32;

    private static final int FRAME_CONTEXT = FRAME_INFO + 128;
    private static final int CONTEXT_PC = 32;
    private static final int CONTEXT_MASK = 616;
    private static final int FRAME_SIZE = FRAME_CONTEXT + 640;

    /** Below the base of a stack whose depth is unknown: a handler must not write over frames. */
    private static final int UNKNOWN_DEPTH = 1 << 20;

    /** Linux x86-64's numbers by MIPS's, from {@code SIGEMT} on: what a shell shows. */
    private static final int[] HOST = {
        7, 8, 9, 7, 11, 31, 13, 14, 15, 10, 12, 17, 30, 28, 23, 29, 19, 20, 18, 21, 22, 26, 27, 24,
        25,
    };

    static final class Action {
        int handler;
        int flags;
        SignalSet mask = new SignalSet();
    }

    /** Where a signal came from. */
    private static final class Info {
        int code;
        int detail;
    }

    private final Guest guest;
    private final Action[] actions = new Action[LAST + 1];
    private final Info[] infos = new Info[LAST + 1];
    private final SignalSet pending = new SignalSet();

    Signals(Guest guest) {
        this.guest = guest;
        for (int i = 0; i <= LAST; i++) {
            actions[i] = new Action();
            infos[i] = new Info();
        }
        guest.poll = guest.fuel != Long.MAX_VALUE;
    }

    // What translated code calls.

    /**
     * Handles what waits for a thread: signals, the guest's end, its fuel.
     *
     * <p>Call it where {@link Guest#poll} is set.
     */
    public static void poll(GuestThread t, int sp) {
        t.guest.threads.checkEnd();
        t.guest.burn();
        t.guest.signals.deliver(t, sp);
        t.guest.signals.resetPoll();
    }

    /** What loops call that can be interrupted: leaves if the guest is to end, and burns fuel. */
    public static void limit(GuestThread t) {
        t.guest.threads.checkEnd();
        t.guest.burn();
    }

    /**
     * Handles a Java exception that stands for a fault of the guest: an index out of bounds is its
     * SIGSEGV.
     *
     * <p>Runs the guest's handler if it has one, which may leave by {@link GuestJump}. Does not
     * return: the faulting instruction can't be tried again.
     */
    public static Error fault(GuestThread t, Throwable cause, int sp) {
        int signal = signalOf(cause);
        if (signal == 0) {
            throw sneak(cause);
        }
        t.guest.signals.report(cause);
        int code = signal == FPE ? FPE_INTDIV : SEGV_MAPERR;
        t.guest.signals.synchronous(t, signal, code, 0, 0, sp);
        return t.guest.signals.kill(signal);
    }

    /** Handles {@code break} and a trap instruction that held. Does not return. */
    public static Error trap(GuestThread t, int code, int sp) {
        boolean arithmetic = code == BREAK_DIVIDE || code == BREAK_OVERFLOW;
        int signal = arithmetic ? FPE : TRAP;
        int reason = code == BREAK_DIVIDE ? FPE_INTDIV : arithmetic ? FPE_INTOVF : SI_KERNEL;
        t.guest.signals.report(new ArithmeticException("break or trap with code " + code));
        t.guest.signals.synchronous(t, signal, reason, 0, 0, sp);
        return t.guest.signals.kill(signal);
    }

    private static int signalOf(Throwable cause) {
        if (cause instanceof IndexOutOfBoundsException
                || cause instanceof StackOverflowError
                || cause instanceof NegativeArraySizeException) {
            return SEGV;
        }
        return cause instanceof ArithmeticException ? FPE : 0;
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> RuntimeException sneak(Throwable e) throws T {
        throw (T) e;
    }

    // Sending.

    /** Sends a signal to a thread, or to whichever thread takes it. */
    void raise(int signal, GuestThread target, int code, int detail) {
        synchronized (this) {
            if (ignored(signal) && !waitedFor(signal, target)) {
                return;
            }
            infos[signal].code = code;
            infos[signal].detail = detail;
            (target != null ? target.pending : pending).add(signal);
        }
        guest.poll = true;
        // Outside our monitor: a waiting thread asks us from inside that of the waits.
        guest.waits.changed();
        for (GuestThread t : guest.threads.all()) {
            java.util.concurrent.locks.LockSupport.unpark(t.carrier);
        }
    }

    /** An ignored signal that is blocked may still be taken by {@code sigwait}. */
    private boolean waitedFor(int signal, GuestThread target) {
        return target != null && target.blocked.contains(signal);
    }

    private boolean ignored(int signal) {
        int handler = actions[signal].handler;
        return handler == SIG_IGN || handler == SIG_DFL && ignoredByDefault(signal);
    }

    /** Stopping is among them: a guest has no job control. */
    private static boolean ignoredByDefault(int signal) {
        return signal == CHLD || signal >= WINCH && signal <= URG || signal >= STOP && signal <= TTOU;
    }

    // Delivering.

    synchronized boolean deliverable(GuestThread t) {
        return next(t) != 0;
    }

    private int next(GuestThread t) {
        int signal = t.pending.firstNotIn(t.blocked);
        return signal != 0 ? signal : pending.firstNotIn(t.blocked);
    }

    /** Clears the flag unless something is left for some thread. */
    synchronized void resetPoll() {
        if (guest.fuel != Long.MAX_VALUE) {
            return;
        }
        guest.poll = false;
        boolean left = guest.threads.ending();
        for (GuestThread t : guest.threads.all()) {
            left |= next(t) != 0;
        }
        guest.poll = left;
    }

    /**
     * Runs the handlers of all signals that wait for a thread.
     *
     * @return whether an interrupted system call may start again
     */
    boolean deliver(GuestThread t, int sp) {
        boolean restart = true;
        while (true) {
            int signal;
            int code;
            int detail;
            synchronized (this) {
                signal = next(t);
                if (signal == 0) {
                    return restart;
                }
                t.pending.remove(signal);
                pending.remove(signal);
                code = infos[signal].code;
                detail = infos[signal].detail;
            }
            restart &= handle(t, signal, code, detail, 0, sp);
        }
    }

    /** A fault of the running thread: its handler runs now, and a blocked one kills. */
    void synchronous(GuestThread t, int signal, int code, int detail, int pc, int sp) {
        if (t.blocked.contains(signal) || actions[signal].handler == SIG_IGN) {
            throw kill(signal);
        }
        handle(t, signal, code, detail, pc, sp);
    }

    /** Whether a call that the signal interrupted may start again. */
    private boolean handle(GuestThread t, int signal, int code, int detail, int pc, int sp) {
        Action action = actions[signal];
        int handler = action.handler;
        if (handler == SIG_IGN || handler == SIG_DFL && ignoredByDefault(signal)) {
            return true;
        }
        if (handler == SIG_DFL) {
            throw kill(signal);
        }
        int flags = action.flags;
        if ((flags & SA_RESETHAND) != 0) {
            action.handler = SIG_DFL;
        }
        int top = (flags & SA_ONSTACK) != 0 ? alternate(t, sp) : sp;
        int frame = top - FRAME_SIZE & -16;
        writeFrame(t, frame, signal, code, detail, pc);
        SignalSet before = t.blocked.copy();
        t.blocked.addAll(action.mask);
        if ((flags & SA_NODEFER) == 0) {
            t.blocked.add(signal);
        }
        int second = (flags & SA_SIGINFO) != 0 ? frame + FRAME_INFO : code;
        guest.code.call(t, handler, frame, signal, second, frame + FRAME_CONTEXT, 0);
        // Not in a finally: a handler that leaves by siglongjmp sets its mask itself.
        t.blocked.set(before);
        return (flags & SA_RESTART) != 0;
    }

    private static int alternate(GuestThread t, int sp) {
        return t.alternateStackSize == 0 || onAlternate(t, sp)
                ? sp
                : t.alternateStack + t.alternateStackSize;
    }

    static boolean onAlternate(GuestThread t, int sp) {
        return sp > t.alternateStack && sp - t.alternateStack <= t.alternateStackSize;
    }

    private static void writeFrame(
            GuestThread t, int frame, int signal, int code, int detail, int pc) {
        java.util.Arrays.fill(t.memory, frame, frame + FRAME_SIZE, (byte) 0);
        writeInfo(t, frame + FRAME_INFO, signal, code, detail);
        t.storeLong(frame + FRAME_CONTEXT + CONTEXT_PC, pc);
        t.blocked.store(t, frame + FRAME_CONTEXT + CONTEXT_MASK);
    }

    /** MIPS has the code before the error number. */
    private static void writeInfo(GuestThread t, int at, int signal, int code, int detail) {
        t.store(at, signal);
        t.store(at + 4, code);
        t.store(at + 12, detail);
        if (code == SI_USER || code == SI_TKILL) {
            t.store(at + 12, Identity.PROCESS);
            t.store(at + 16, Identity.USER);
        }
    }

    // Ending.

    /** The guest's death by a signal. */
    GuestExit kill(int signal) {
        GuestExit exit = new GuestExit(128 + host(signal), signal);
        guest.threads.end(exit);
        return exit;
    }

    private static int host(int signal) {
        return signal >= 7 && signal <= 31 ? HOST[signal - 7] : signal;
    }

    /** What is to become of an exception that no frame of a thread caught. */
    GuestExit uncaught(GuestThread t, Throwable e) {
        report(e);
        try {
            if (e instanceof GuestThrow && e.getCause() != null) {
                complain("fettle: exception of Java that nobody catches: " + e.getCause() + "\n");
                return kill(ABRT);
            } else if (e instanceof GuestThrow) {
                GuestException described = GuestException.of(t, (GuestThrow) e);
                complain(described.terminateMessage());
                return kill(ABRT);
            } else if (e instanceof GuestJump) {
                complain("fettle: longjmp to a function that has returned\n");
                return kill(ABRT);
            }
            if (signalOf(e) == 0) {
                StringBuilder text = new StringBuilder("fettle: Java runtime failed: " + e + "\n");
                for (StackTraceElement frame : e.getStackTrace()) {
                    text.append("    at ").append(frame).append('\n');
                }
                complain(text.toString());
                return kill(ABRT);
            }
            throw fault(t, e, t.stackBase - UNKNOWN_DEPTH);
        } catch (GuestExit exit) {
            return exit;
        } catch (Throwable again) {
            report(again);
            return kill(SEGV);
        }
    }

    private void report(Throwable e) {
        if (guest.options.trace) {
            e.printStackTrace(new PrintStream(System.err, true));
        }
    }

    private void complain(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        try {
            guest.files.get(2).write(guest.thread(), bytes, 0, bytes.length);
        } catch (IOException e) {
            System.err.print(text);
        }
    }

    // What the system calls on signals do.

    synchronized Action action(int signal) {
        return actions[signal];
    }

    /** Sets what a signal does; one that is to be ignored is forgotten if it waits. */
    synchronized void setAction(int signal, int handler, int flags, SignalSet mask) {
        Action action = actions[signal];
        action.handler = handler;
        action.flags = flags;
        action.mask = mask;
        if (ignored(signal)) {
            pending.remove(signal);
            for (GuestThread t : guest.threads.all()) {
                t.pending.remove(signal);
            }
        }
    }

    synchronized void setBlocked(GuestThread t, SignalSet mask) {
        t.blocked.set(mask);
        t.blocked.remove(KILL);
        t.blocked.remove(STOP);
        if (next(t) != 0) {
            guest.poll = true;
        }
    }

    synchronized SignalSet pendingFor(GuestThread t) {
        SignalSet set = t.pending.copy();
        set.addAll(pending);
        return set;
    }

    /** Takes a pending signal of a set without running its handler, or returns 0. */
    synchronized int take(GuestThread t, SignalSet wanted, int infoAddress) {
        int signal = t.pending.firstIn(wanted);
        if (signal == 0) {
            signal = pending.firstIn(wanted);
        }
        if (signal != 0) {
            t.pending.remove(signal);
            pending.remove(signal);
            if (infoAddress != 0) {
                writeInfo(t, infoAddress, signal, infos[signal].code, infos[signal].detail);
            }
        }
        return signal;
    }
}
