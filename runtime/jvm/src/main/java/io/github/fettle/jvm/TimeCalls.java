package io.github.fettle.jvm;

import java.io.IOException;

/** System calls on time. */
final class TimeCalls {
    private static final int TIMER_ABSTIME = 1;

    private TimeCalls() {}

    /** A {@code timespec} as nanoseconds. */
    static long load(GuestThread t, int at, boolean wide) throws Errno {
        long seconds = wide ? t.loadLong(at) : t.load(at);
        long nanoseconds = wide ? (int) t.loadLong(at + 8) : t.load(at + 4);
        if (seconds < 0 || nanoseconds < 0 || nanoseconds >= Clock.SECOND) {
            throw new Errno(Errno.EINVAL);
        }
        return seconds > Long.MAX_VALUE / Clock.SECOND - 1
                ? Long.MAX_VALUE
                : seconds * Clock.SECOND + nanoseconds;
    }

    static void store(GuestThread t, int at, boolean wide, long time) {
        if (wide) {
            t.storeLong(at, time / Clock.SECOND);
            t.storeLong(at + 8, time % Clock.SECOND);
        } else {
            t.store(at, (int) (time / Clock.SECOND));
            t.store(at + 4, (int) (time % Clock.SECOND));
        }
    }

    /** A deadline from now on, for {@link Waits}. */
    static long after(long nanoseconds) {
        long now = System.nanoTime();
        return nanoseconds > Long.MAX_VALUE - Math.max(0, now) - 1
                ? Waits.FOREVER
                : now + nanoseconds;
    }

    static int read(GuestThread t, int clock, int to, boolean wide) throws Errno {
        store(t, to, wide, t.guest.clock.read(clock));
        return 0;
    }

    static int resolution(GuestThread t, int clock, int to, boolean wide) throws Errno {
        t.guest.clock.read(clock);
        if (to != 0) {
            store(t, to, wide, 1);
        }
        return 0;
    }

    static int timeOfDay(GuestThread t, int to, int zone) {
        long now = t.guest.clock.realtime();
        if (to != 0) {
            t.store(to, (int) (now / Clock.SECOND));
            t.store(to + 4, (int) (now % Clock.SECOND / 1000));
        }
        if (zone != 0) {
            t.storeLong(zone, 0);
        }
        return 0;
    }

    static int time(GuestThread t, int to) {
        int now = (int) (t.guest.clock.realtime() / Clock.SECOND);
        if (to != 0) {
            t.store(to, now);
        }
        return now;
    }

    static int sleep(GuestThread t, int clock, int flags, int request, int left, boolean wide)
            throws IOException {
        long time = load(t, request, wide);
        boolean absolute = (flags & TIMER_ABSTIME) != 0;
        long deadline = absolute ? t.guest.clock.deadline(clock, time) : after(time);
        try {
            t.guest.waits.await(t, () -> false, deadline);
            return 0;
        } catch (Errno e) {
            if (left != 0 && !absolute) {
                store(t, left, wide, Math.max(0, deadline - System.nanoTime()));
            }
            throw e;
        }
    }

    static int times(GuestThread t, int to) {
        if (to != 0) {
            long ticks = t.guest.clock.processCpu() / (Clock.SECOND / Clock.TICKS_PER_SECOND);
            t.store(to, (int) ticks);
            t.store(to + 4, 0);
            t.store(to + 8, 0);
            t.store(to + 12, 0);
        }
        return (int) (t.guest.clock.monotonic() / (Clock.SECOND / Clock.TICKS_PER_SECOND));
    }

    static int usage(GuestThread t, int to) {
        java.util.Arrays.fill(t.memory, to, to + 72, (byte) 0);
        long time = t.guest.clock.processCpu();
        t.store(to, (int) (time / Clock.SECOND));
        t.store(to + 4, (int) (time % Clock.SECOND / 1000));
        t.store(to + 16, t.memory.length >> 10);
        return 0;
    }
}
