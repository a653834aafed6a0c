package io.github.fettle.jvm;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** The threads of a guest, and its end. */
final class Threads {
    /** Java stack of the first thread and of others: only what is used takes memory. */
    private static final long FIRST_STACK = 1L << 30;

    private static final long OTHER_STACK = 256L << 20;

    private static final int OWNER_DIED = 0x4000_0000;
    private static final int OWNER_MASK = 0x3fff_ffff;
    private static final int WAITERS = 0x8000_0000;

    /** A list that a thread damaged must not hold up its end. */
    private static final int ROBUST_LIMIT = 2048;

    final Futexes futexes = new Futexes();
    private final Guest guest;
    private final Map<Integer, GuestThread> running = new LinkedHashMap<>();
    private int nextId = Identity.PROCESS;
    private volatile boolean several;
    private volatile GuestExit end;

    Threads(Guest guest) {
        this.guest = guest;
    }

    GuestThread first() {
        return add();
    }

    private synchronized GuestThread add() {
        GuestThread t = new GuestThread(guest, nextId++);
        running.put(t.id, t);
        return t;
    }

    /** Whether a second thread was ever made: memory does not grow from then on. */
    boolean several() {
        return several;
    }

    synchronized GuestThread find(int id) {
        return running.get(id);
    }

    synchronized GuestThread[] all() {
        return running.values().toArray(new GuestThread[0]);
    }

    /** Makes a thread that starts at the function that {@code clone}'s caller put on its stack. */
    int clone(GuestThread parent, int flags, int sp, int parentId, int tls, int childId)
            throws Errno {
        if (!several) {
            guest.fix(parent);
            Atomics.setConcurrent();
            several = true;
        }
        GuestThread child = add();
        child.blocked.set(parent.blocked);
        child.tls = (flags & ThreadCalls.CLONE_SETTLS) != 0 ? tls : parent.tls;
        if ((flags & ThreadCalls.CLONE_PARENT_SETTID) != 0) {
            parent.store(parentId, child.id);
        }
        if ((flags & ThreadCalls.CLONE_CHILD_SETTID) != 0) {
            parent.store(childId, child.id);
        }
        if ((flags & ThreadCalls.CLONE_CHILD_CLEARTID) != 0) {
            child.clearOnExit = childId;
        }
        child.stackBase = sp;
        int function = parent.load(sp);
        int argument = parent.load(sp + 4);
        start(child, function, sp, argument);
        return child.id;
    }

    /** Starts a thread of Java's that calls a function. */
    void start(GuestThread t, int function, int sp, int argument) {
        // No lambda: the first one of a JVM takes longer than a short program.
        Runnable body = new Runnable() {
            @Override
            public void run() {
                body(t, function, sp, argument);
            }
        };
        boolean first = t == guest.thread();
        Thread thread =
                new Thread(null, body, "guest " + t.id, first ? FIRST_STACK : OTHER_STACK);
        thread.setDaemon(true);
        t.carrier = thread;
        thread.start();
    }

    private void body(GuestThread t, int function, int sp, int argument) {
        try {
            int status = (int) guest.code.call(t, function, sp, argument, 0, 0, 0);
            leave(t, status);
        } catch (ThreadExit e) {
            leave(t, e.status);
        } catch (GuestExit e) {
            end(e);
        } catch (Throwable e) {
            end(guest.signals.uncaught(t, e));
        }
    }

    /** Ends one thread: robust mutexes, the word that {@code pthread_join} waits for. */
    private void leave(GuestThread t, int status) {
        try {
            releaseRobust(t);
            if (t.clearOnExit != 0 && several) {
                t.store(t.clearOnExit, 0);
                futexes.wake(t.clearOnExit, 1, -1);
            }
        } catch (IndexOutOfBoundsException e) {
            // The kernel ignores a bad address here, too.
        }
        boolean last;
        synchronized (this) {
            running.remove(t.id);
            last = running.isEmpty();
        }
        if (last) {
            end(new GuestExit(status & 255, 0));
        }
    }

    private void releaseRobust(GuestThread t) {
        int head = t.robustList;
        if (head == 0) {
            return;
        }
        int offset = t.load(head + 4);
        int entry = t.load(head) & ~1;
        for (int i = 0; i < ROBUST_LIMIT && entry != head && entry != 0; i++) {
            int next = t.load(entry) & ~1;
            int word = entry + offset;
            int seen = t.load(word);
            while ((seen & OWNER_MASK) == t.id) {
                if (t.compareAndSet(word, seen, seen & WAITERS | OWNER_DIED)) {
                    futexes.wake(word, 1, -1);
                    break;
                }
                seen = t.load(word);
            }
            entry = next;
        }
    }

    /** Ends the guest: the first cause counts. */
    synchronized void end(GuestExit exit) {
        if (end == null) {
            end = exit;
        }
        guest.poll = true;
        for (GuestThread t : running.values()) {
            LockSupport.unpark(t.carrier);
        }
        notifyAll();
        guest.waits.changed();
    }

    boolean ending() {
        return end != null;
    }

    /** Leaves the thread if the guest ended. */
    void checkEnd() {
        GuestExit exit = end;
        if (exit != null) {
            throw exit;
        }
    }

    synchronized GuestExit awaitEnd() {
        while (end == null) {
            try {
                wait();
            } catch (InterruptedException e) {
                end(new GuestExit(128 + 15, Signals.TERM));
            }
        }
        return end;
    }

    /** A library's main has ended, and its functions live on. */
    synchronized void revive() {
        end = null;
        guest.poll = guest.fuel != Long.MAX_VALUE;
    }
}
