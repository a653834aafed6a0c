package io.github.fettle.jvm;

import java.io.IOException;

/** System calls on signals and the timers that send them. */
final class SignalCalls {
    private static final int SIG_BLOCK = 1;
    private static final int SIG_UNBLOCK = 2;
    private static final int SIG_SETMASK = 3;
    private static final int SS_ONSTACK = 1;
    private static final int SS_DISABLE = 2;
    private static final int LEAST_STACK = 2048;
    private static final long MICRO = 1000;

    private SignalCalls() {}

    /** {@code struct sigaction} on MIPS: flags, handler, mask. */
    static int action(GuestThread t, int signal, int now, int before, int size) throws Errno {
        boolean fixed = signal == Signals.KILL || signal == Signals.STOP;
        if (signal < 1 || signal > Signals.LAST || size != SignalSet.BYTES || fixed && now != 0) {
            throw new Errno(Errno.EINVAL);
        }
        Signals signals = t.guest.signals;
        Signals.Action action = signals.action(signal);
        int flags = action.flags;
        int handler = action.handler;
        SignalSet mask = action.mask;
        if (now != 0) {
            signals.setAction(
                    signal, t.load(now + 4), t.load(now), SignalSet.load(t, now + 8));
        }
        if (before != 0) {
            t.store(before, flags);
            t.store(before + 4, handler);
            mask.store(t, before + 8);
        }
        return 0;
    }

    static int mask(GuestThread t, int how, int now, int before, int size) throws Errno {
        if (size != SignalSet.BYTES) {
            throw new Errno(Errno.EINVAL);
        }
        SignalSet old = t.blocked.copy();
        if (now != 0) {
            SignalSet argument = SignalSet.load(t, now);
            SignalSet next = old.copy();
            switch (how) {
                case SIG_BLOCK:
                    next.addAll(argument);
                    break;
                case SIG_UNBLOCK:
                    next.removeAll(argument);
                    break;
                case SIG_SETMASK:
                    next = argument;
                    break;
                default:
                    throw new Errno(Errno.EINVAL);
            }
            t.guest.signals.setBlocked(t, next);
        }
        if (before != 0) {
            old.store(t, before);
        }
        return 0;
    }

    static int pending(GuestThread t, int to) {
        SignalSet set = t.guest.signals.pendingFor(t);
        SignalSet free = set.copy();
        free.removeAll(t.blocked);
        set.removeAll(free);
        set.store(t, to);
        return 0;
    }

    /** Waits with another mask; the handlers run under it. */
    static int suspend(GuestThread t, int mask, int sp) throws IOException {
        SignalSet before = t.blocked.copy();
        t.guest.signals.setBlocked(t, SignalSet.load(t, mask));
        try {
            t.guest.waits.await(t, () -> false, Waits.FOREVER);
        } catch (Errno e) {
            t.guest.signals.deliver(t, sp);
        }
        t.guest.signals.setBlocked(t, before);
        throw new Errno(Errno.EINTR);
    }

    static int pause(GuestThread t) throws IOException {
        t.guest.waits.await(t, () -> false, Waits.FOREVER);
        throw new Errno(Errno.EINTR);
    }

    static int timedWait(GuestThread t, int set, int info, int time, boolean wide)
            throws IOException {
        SignalSet wanted = SignalSet.load(t, set);
        long deadline = time == 0 ? Waits.FOREVER : TimeCalls.after(TimeCalls.load(t, time, wide));
        int[] taken = {0};
        boolean came = t.guest.waits.await(
                t,
                () -> {
                    taken[0] = t.guest.signals.take(t, wanted, info);
                    return taken[0] != 0;
                },
                deadline);
        if (!came) {
            throw new Errno(Errno.EAGAIN);
        }
        return taken[0];
    }

    static int kill(GuestThread t, int process, int signal) throws Errno {
        if (signal < 0 || signal > Signals.LAST) {
            throw new Errno(Errno.EINVAL);
        }
        if (process > 0 && process != Identity.PROCESS || process < -1) {
            throw new Errno(Errno.ESRCH); // only itself is there
        }
        if (signal != 0) {
            send(t, null, signal, Signals.SI_USER);
        }
        return 0;
    }

    static int threadKill(GuestThread t, int process, int thread, int signal) throws Errno {
        GuestThread target = t.guest.threads.find(thread);
        if (signal < 0 || signal > Signals.LAST || thread <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        if (target == null || process > 0 && process != Identity.PROCESS) {
            throw new Errno(Errno.ESRCH);
        }
        if (signal != 0) {
            send(t, target, signal, Signals.SI_TKILL);
        }
        return 0;
    }

    private static void send(GuestThread t, GuestThread target, int signal, int code) {
        if (signal == Signals.KILL) {
            throw t.guest.signals.kill(signal);
        }
        t.guest.signals.raise(signal, target, code, 0);
    }

    /** {@code stack_t}: address, size, flags on MIPS. */
    static int alternateStack(GuestThread t, int now, int before, int sp) throws Errno {
        boolean on = Signals.onAlternate(t, sp);
        if (before != 0) {
            t.store(before, t.alternateStack);
            t.store(before + 4, t.alternateStackSize);
            t.store(
                    before + 8,
                    on ? SS_ONSTACK : t.alternateStackSize == 0 ? SS_DISABLE : 0);
        }
        if (now != 0) {
            if (on) {
                throw new Errno(Errno.EPERM);
            }
            boolean disable = (t.load(now + 8) & SS_DISABLE) != 0;
            int size = t.load(now + 4);
            if (!disable && size < LEAST_STACK) {
                throw new Errno(Errno.ENOMEM);
            }
            t.alternateStack = disable ? 0 : t.load(now);
            t.alternateStackSize = disable ? 0 : size;
        }
        return 0;
    }

    static int alarm(GuestThread t, int seconds) {
        Timers timers = t.guest.timers();
        long left = timers.left(0);
        timers.set(0, (seconds & 0xffff_ffffL) * Clock.SECOND, 0);
        return (int) ((left + Clock.SECOND - 1) / Clock.SECOND);
    }

    static int timer(GuestThread t, int kind, int now, int before) throws Errno {
        Timers timers = timers(t, kind);
        long left = timers.left(kind);
        long interval = timers.interval(kind);
        if (now != 0) {
            timers.set(kind, loadMicro(t, now + 8), loadMicro(t, now));
        }
        if (before != 0) {
            storeMicro(t, before, interval);
            storeMicro(t, before + 8, left);
        }
        return 0;
    }

    static int readTimer(GuestThread t, int kind, int to) throws Errno {
        Timers timers = timers(t, kind);
        storeMicro(t, to, timers.interval(kind));
        storeMicro(t, to + 8, timers.left(kind));
        return 0;
    }

    private static Timers timers(GuestThread t, int kind) throws Errno {
        if (kind < 0 || kind > 2) {
            throw new Errno(Errno.EINVAL);
        }
        return t.guest.timers();
    }

    private static long loadMicro(GuestThread t, int at) {
        return t.load(at) * Clock.SECOND + t.load(at + 4) * MICRO;
    }

    private static void storeMicro(GuestThread t, int at, long time) {
        t.store(at, (int) (time / Clock.SECOND));
        t.store(at + 4, (int) (time % Clock.SECOND / MICRO));
    }
}
