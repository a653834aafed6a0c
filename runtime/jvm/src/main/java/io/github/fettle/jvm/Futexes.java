package io.github.fettle.jvm;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.concurrent.locks.LockSupport;

/** Threads parked by the address of a word of guest memory. */
final class Futexes {
    private static final class Waiter {
        final Thread thread = Thread.currentThread();
        final int mask;
        int address;
        volatile boolean woken;

        Waiter(int address, int mask) {
            this.address = address;
            this.mask = mask;
        }
    }

    private final HashMap<Integer, ArrayDeque<Waiter>> parked = new HashMap<>();

    /** Waits while the word has a value. False when the time is over. */
    boolean await(GuestThread t, int address, int expected, int mask, long deadline) throws Errno {
        Waiter waiter = new Waiter(address, mask);
        synchronized (this) {
            if (t.load(address) != expected) {
                throw new Errno(Errno.EAGAIN);
            }
            parked.computeIfAbsent(address, key -> new ArrayDeque<>()).add(waiter);
        }
        while (!waiter.woken) {
            long left = deadline == Waits.FOREVER ? Long.MAX_VALUE : deadline - System.nanoTime();
            boolean signal = t.guest.threads.ending() || t.guest.signals.deliverable(t);
            if (left <= 0 || signal) {
                if (!remove(waiter)) {
                    break; // woken meanwhile: that counts
                }
                t.guest.threads.checkEnd();
                if (signal) {
                    throw new Errno(Errno.RESTART);
                }
                return false;
            }
            if (left == Long.MAX_VALUE) {
                LockSupport.park(this);
            } else {
                LockSupport.parkNanos(this, left);
            }
        }
        return true;
    }

    /** Whether the waiter was still queued. */
    private synchronized boolean remove(Waiter waiter) {
        ArrayDeque<Waiter> queue = parked.get(waiter.address);
        boolean removed = queue != null && queue.remove(waiter);
        if (queue != null && queue.isEmpty()) {
            parked.remove(waiter.address);
        }
        return removed;
    }

    synchronized int wake(int address, int count, int mask) {
        ArrayDeque<Waiter> queue = parked.get(address);
        int woken = 0;
        if (queue != null) {
            Iterator<Waiter> waiters = queue.iterator();
            while (woken < count && waiters.hasNext()) {
                Waiter waiter = waiters.next();
                if ((waiter.mask & mask) != 0) {
                    waiters.remove();
                    waiter.woken = true;
                    LockSupport.unpark(waiter.thread);
                    woken++;
                }
            }
            if (queue.isEmpty()) {
                parked.remove(address);
            }
        }
        return woken;
    }

    /** Wakes some and lets others wait at a second address. */
    synchronized int requeue(int address, int wake, int move, int target) {
        int done = wake(address, wake, -1);
        ArrayDeque<Waiter> queue = parked.get(address);
        if (queue == null || move <= 0 || target == address) {
            return done;
        }
        ArrayDeque<Waiter> other = parked.computeIfAbsent(target, key -> new ArrayDeque<>());
        for (int moved = 0; moved < move && !queue.isEmpty(); moved++) {
            Waiter waiter = queue.remove();
            waiter.address = target;
            other.add(waiter);
            done++;
        }
        if (queue.isEmpty()) {
            parked.remove(address);
        }
        return done;
    }
}
