package io.github.fettle.jvm;

import java.io.IOException;

/**
 * Where guest threads wait for pipes, timers and signals: one monitor a guest.
 *
 * <p>Every change of something that a thread may wait for happens under the monitor and wakes all;
 * each looks again. Mutexes of the guest do not come here (see {@link Futexes}), so there are few.
 */
final class Waits {
    /** A condition that may fail as a system call does. */
    interface Condition {
        boolean holds() throws IOException;
    }

    static final long FOREVER = Long.MAX_VALUE;

    /** Wakes all waiting threads to look again. */
    synchronized void changed() {
        notifyAll();
    }

    /**
     * Waits until a condition holds.
     *
     * @param deadline in {@link System#nanoTime}, or {@link #FOREVER}
     * @return whether it holds; false when the time is over
     * @throws Errno {@link Errno#RESTART} when a signal came
     */
    boolean await(GuestThread t, Condition condition, long deadline) throws IOException {
        return await(t, condition, deadline, Long.MAX_VALUE);
    }

    /** The same, looking at least every so many nanoseconds: for what does not notify. */
    synchronized boolean await(GuestThread t, Condition condition, long deadline, long period)
            throws IOException {
        while (true) {
            if (condition.holds()) {
                return true;
            }
            t.guest.threads.checkEnd();
            if (t.guest.signals.deliverable(t)) {
                throw new Errno(Errno.RESTART);
            }
            long left = deadline == FOREVER ? Long.MAX_VALUE : deadline - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            sleep(Math.min(left, period));
        }
    }

    private void sleep(long nanoseconds) {
        try {
            if (nanoseconds == Long.MAX_VALUE) {
                wait();
            } else {
                wait(nanoseconds / 1_000_000, (int) (nanoseconds % 1_000_000));
            }
        } catch (InterruptedException e) {
            // The Java code around the guest wants this thread back: the guest's way out is its end.
            Thread.currentThread().interrupt();
            throw new GuestExit(128 + 15, Signals.TERM);
        }
    }
}
