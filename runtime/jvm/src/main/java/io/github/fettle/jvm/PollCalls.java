package io.github.fettle.jvm;

import java.io.IOException;

/** System calls that wait for one of many descriptors. */
final class PollCalls {
    /** What Java can't notify us of is looked at this often. */
    private static final long PERIOD = 1_000_000;

    private static final int EPOLL_ADD = 1;
    private static final int EPOLL_DELETE = 2;
    private static final int EPOLL_MODIFY = 3;

    private PollCalls() {}

    /** How long a wait for a file may go without looking again. */
    static long period(OpenFile file) {
        return file instanceof PipeEnd || file instanceof EventCounter ? Long.MAX_VALUE : PERIOD;
    }

    static int poll(GuestThread t, int set, int count, long deadline) throws IOException {
        if (count < 0 || count > FileTable.LIMIT) {
            throw new Errno(Errno.EINVAL);
        }
        int[] ready = {0};
        long period = Long.MAX_VALUE;
        for (int i = 0; i < count; i++) {
            int descriptor = t.load(set + i * 8);
            if (descriptor >= 0) {
                OpenFile file = open(t, descriptor);
                period = file == null ? period : Math.min(period, period(file));
            }
        }
        t.guest.waits.await(t, () -> {
            ready[0] = 0;
            for (int i = 0; i < count; i++) {
                int at = set + i * 8;
                int bits = look(t, t.load(at), t.loadShort(at + 4));
                t.storeShort(at + 6, bits);
                ready[0] += bits != 0 ? 1 : 0;
            }
            return ready[0] != 0;
        }, deadline, period);
        return ready[0];
    }

    private static OpenFile open(GuestThread t, int descriptor) {
        try {
            return t.guest.files.get(descriptor);
        } catch (Errno e) {
            return null;
        }
    }

    private static int look(GuestThread t, int descriptor, int wanted) throws IOException {
        if (descriptor < 0) {
            return 0;
        }
        OpenFile file = open(t, descriptor);
        if (file == null) {
            return Flags.POLLNVAL;
        }
        int bits = file.ready();
        int normal = (bits & Flags.POLLIN) != 0 ? bits | 0x40 : bits;
        return normal & (wanted | Flags.POLLERR | Flags.POLLHUP);
    }

    static long milliseconds(int time) {
        return time < 0 ? Waits.FOREVER : TimeCalls.after(time * 1_000_000L);
    }

    static long timespec(GuestThread t, int at, boolean wide) throws Errno {
        return at == 0 ? Waits.FOREVER : TimeCalls.after(TimeCalls.load(t, at, wide));
    }

    static long timeval(GuestThread t, int at) {
        return at == 0
                ? Waits.FOREVER
                : TimeCalls.after(t.load(at) * Clock.SECOND + t.load(at + 4) * 1000L);
    }

    /** Runs a wait under another signal mask. */
    static int masked(GuestThread t, int mask, int sp, Call call) throws IOException {
        if (mask == 0) {
            return call.run();
        }
        SignalSet before = t.blocked.copy();
        t.guest.signals.setBlocked(t, SignalSet.load(t, mask));
        try {
            return call.run();
        } catch (Errno e) {
            if (e.number == Errno.RESTART) {
                t.guest.signals.deliver(t, sp);
                throw new Errno(Errno.EINTR);
            }
            throw e;
        } finally {
            t.guest.signals.setBlocked(t, before);
        }
    }

    interface Call {
        int run() throws IOException;
    }

    static int select(GuestThread t, int count, int in, int out, int except, long deadline)
            throws IOException {
        if (count < 0) {
            throw new Errno(Errno.EINVAL);
        }
        int words = (count + 31) / 32;
        int[] wantedIn = load(t, in, words);
        int[] wantedOut = load(t, out, words);
        int[] foundIn = new int[words];
        int[] foundOut = new int[words];
        int[] ready = {0};
        long period = Long.MAX_VALUE;
        for (int i = 0; i < count; i++) {
            if (((wantedIn[i / 32] | wantedOut[i / 32]) >> i % 32 & 1) != 0) {
                period = Math.min(period, period(t.guest.files.get(i)));
            }
        }
        t.guest.waits.await(t, () -> {
            ready[0] = 0;
            for (int i = 0; i < count; i++) {
                int bit = 1 << i % 32;
                boolean reads = (wantedIn[i / 32] & bit) != 0;
                boolean writes = (wantedOut[i / 32] & bit) != 0;
                int bits = reads || writes ? t.guest.files.get(i).ready() : 0;
                if (reads && (bits & ~Flags.POLLOUT) != 0) {
                    foundIn[i / 32] |= bit;
                    ready[0]++;
                }
                if (writes && (bits & (Flags.POLLOUT | Flags.POLLERR)) != 0) {
                    foundOut[i / 32] |= bit;
                    ready[0]++;
                }
            }
            return ready[0] != 0;
        }, deadline, period);
        store(t, in, foundIn);
        store(t, out, foundOut);
        store(t, except, new int[words]);
        return ready[0];
    }

    private static int[] load(GuestThread t, int at, int words) {
        int[] set = new int[words];
        for (int i = 0; i < words && at != 0; i++) {
            set[i] = t.load(at + i * 4);
        }
        return set;
    }

    private static void store(GuestThread t, int at, int[] set) {
        for (int i = 0; i < set.length && at != 0; i++) {
            t.store(at + i * 4, set[i]);
        }
    }

    static int epollCreate(GuestThread t, int flags) throws IOException {
        return t.guest.files.add(new Epoll(), (flags & Flags.O_CLOEXEC) != 0);
    }

    private static Epoll epoll(GuestThread t, int descriptor) throws Errno {
        OpenFile file = t.guest.files.get(descriptor);
        if (!(file instanceof Epoll)) {
            throw new Errno(Errno.EINVAL);
        }
        return (Epoll) file;
    }

    static int epollControl(GuestThread t, int descriptor, int operation, int target, int event)
            throws IOException {
        Epoll epoll = epoll(t, descriptor);
        OpenFile file = t.guest.files.get(target);
        if (file instanceof HostFile || file instanceof OpenDirectory) {
            throw new Errno(Errno.EPERM);
        }
        switch (operation) {
            case EPOLL_ADD:
                epoll.add(target, file, t.load(event), t.loadLong(event + 8));
                break;
            case EPOLL_MODIFY:
                epoll.modify(target, t.load(event), t.loadLong(event + 8));
                break;
            case EPOLL_DELETE:
                epoll.delete(target);
                break;
            default:
                throw new Errno(Errno.EINVAL);
        }
        t.guest.waits.changed();
        return 0;
    }

    static int epollWait(GuestThread t, int descriptor, int to, int most, long deadline)
            throws IOException {
        if (most <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        Epoll epoll = epoll(t, descriptor);
        int[] count = {0};
        t.guest.waits.await(t, () -> {
            count[0] = epoll.collect(t, to, most);
            return count[0] != 0;
        }, deadline, PERIOD);
        return count[0];
    }
}
