package io.github.fettle.jvm;

import java.util.Timer;
import java.util.TimerTask;

/** {@code alarm} and {@code setitimer}: one timer of each kind. */
final class Timers {
    private static final int KINDS = 3;
    private static final int[] SIGNALS = {Signals.ALRM, Signals.VTALRM, Signals.PROF};

    private final Guest guest;
    private final TimerTask[] tasks = new TimerTask[KINDS];
    private final long[] due = new long[KINDS];
    private final long[] interval = new long[KINDS];
    private Timer timer;

    Timers(Guest guest) {
        this.guest = guest;
    }

    /** Nanoseconds until a timer fires, or 0 if it is not set. */
    synchronized long left(int kind) {
        return tasks[kind] == null ? 0 : Math.max(1000, due[kind] - System.nanoTime());
    }

    synchronized long interval(int kind) {
        return interval[kind];
    }

    /**
     * Sets a timer; a first time of 0 stops it.
     *
     * <p>Timers of CPU time run by the clock: a JVM's CPU time is not the guest's alone.
     */
    synchronized void set(int kind, long first, long period) {
        if (tasks[kind] != null) {
            tasks[kind].cancel();
            tasks[kind] = null;
        }
        interval[kind] = period;
        if (first != 0) {
            start(kind, first);
        }
    }

    private void start(int kind, long first) {
        if (timer == null) {
            timer = new Timer("guest timers", true);
        }
        due[kind] = System.nanoTime() + first;
        tasks[kind] = new TimerTask() {
            @Override
            public void run() {
                fire(kind, this);
            }
        };
        timer.schedule(tasks[kind], Math.max(1, (first + 999_999) / 1_000_000));
    }

    private void fire(int kind, TimerTask task) {
        synchronized (this) {
            if (tasks[kind] != task) {
                return;
            }
            tasks[kind] = null;
            if (interval[kind] != 0) {
                start(kind, interval[kind]);
            }
        }
        guest.signals.raise(SIGNALS[kind], null, Signals.SI_KERNEL, 0);
    }
}
