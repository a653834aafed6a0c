package io.github.fettle.jvm;

import java.io.IOException;

/** System calls on threads. */
final class ThreadCalls {
    static final int CLONE_VM = 0x100;
    static final int CLONE_THREAD = 0x10000;
    static final int CLONE_SETTLS = 0x80000;
    static final int CLONE_PARENT_SETTID = 0x100000;
    static final int CLONE_CHILD_CLEARTID = 0x200000;
    static final int CLONE_CHILD_SETTID = 0x1000000;

    private static final int FUTEX_WAIT = 0;
    private static final int FUTEX_WAKE = 1;
    private static final int FUTEX_REQUEUE = 3;
    private static final int FUTEX_CMP_REQUEUE = 4;
    private static final int FUTEX_WAKE_OP = 5;
    private static final int FUTEX_WAIT_BITSET = 9;
    private static final int FUTEX_WAKE_BITSET = 10;
    private static final int FUTEX_PRIVATE = 128;
    private static final int FUTEX_REALTIME = 256;

    private ThreadCalls() {}

    static int clone(GuestThread t, int flags, int stack, int parentId, int tls, int childId)
            throws Errno {
        if ((flags & (CLONE_VM | CLONE_THREAD)) != (CLONE_VM | CLONE_THREAD) || stack == 0) {
            return refuseProcess("fork");
        }
        return t.guest.threads.clone(t, flags, stack, parentId, tls, childId);
    }

    /** A JVM can't be copied: says so once a call, since programs seldom say why they failed. */
    static int refuseProcess(String name) throws Errno {
        System.err.println(
                "fettle: the program called " + name + ", and a program in a JVM can't start a"
                        + " process: the call fails with ENOSYS");
        throw new Errno(Errno.ENOSYS);
    }

    static int setTidAddress(GuestThread t, int address) {
        t.clearOnExit = address;
        return t.id;
    }

    static int exit(int status) {
        throw new ThreadExit(status);
    }

    static int exitGroup(GuestThread t, int status) {
        GuestExit exit = new GuestExit(status & 255, 0);
        t.guest.threads.end(exit);
        throw exit;
    }

    static int futex(
            GuestThread t, int address, int operation, int value, int time, boolean wide, int sp)
            throws IOException {
        if ((address & 3) != 0) {
            throw new Errno(Errno.EINVAL);
        }
        Futexes futexes = t.guest.threads.futexes;
        int command = operation & ~(FUTEX_PRIVATE | FUTEX_REALTIME);
        switch (command) {
            case FUTEX_WAIT:
            case FUTEX_WAIT_BITSET:
                boolean bits = command == FUTEX_WAIT_BITSET;
                int mask = bits ? t.load(sp + 20) : -1;
                long deadline = deadline(t, time, wide, bits, (operation & FUTEX_REALTIME) != 0);
                if (!futexes.await(t, address, value, mask, deadline)) {
                    throw new Errno(Errno.ETIMEDOUT);
                }
                return 0;
            case FUTEX_WAKE:
                return futexes.wake(address, value, -1);
            case FUTEX_WAKE_BITSET:
                return futexes.wake(address, value, t.load(sp + 20));
            case FUTEX_CMP_REQUEUE:
                if (t.load(address) != t.load(sp + 20)) {
                    throw new Errno(Errno.EAGAIN);
                }
                return futexes.requeue(address, value, time, t.load(sp + 16));
            case FUTEX_REQUEUE:
                return futexes.requeue(address, value, time, t.load(sp + 16));
            case FUTEX_WAKE_OP:
                return wakeOperation(t, address, value, time, t.load(sp + 16), t.load(sp + 20));
            default:
                throw new Errno(Errno.ENOSYS);
        }
    }

    /** FUTEX_WAIT has a duration, FUTEX_WAIT_BITSET a point in time. */
    private static long deadline(
            GuestThread t, int time, boolean wide, boolean absolute, boolean realtime)
            throws Errno {
        if (time == 0) {
            return Waits.FOREVER;
        }
        long nanoseconds = TimeCalls.load(t, time, wide);
        return absolute
                ? t.guest.clock.deadline(realtime ? 0 : 1, nanoseconds)
                : TimeCalls.after(nanoseconds);
    }

    private static int wakeOperation(
            GuestThread t, int address, int wake, int wakeOther, int other, int operation) {
        int argument = operation << 8 >> 20;
        int comparand = operation << 20 >> 20;
        if ((operation & 0x8000_0000) != 0) {
            argument = 1 << argument;
        }
        int old;
        int value;
        do {
            old = t.load(other);
            switch (operation >> 28 & 7) {
                case 0:
                    value = argument;
                    break;
                case 1:
                    value = old + argument;
                    break;
                case 2:
                    value = old | argument;
                    break;
                case 3:
                    value = old & ~argument;
                    break;
                default:
                    value = old ^ argument;
            }
        } while (!t.compareAndSet(other, old, value));
        Futexes futexes = t.guest.threads.futexes;
        int woken = futexes.wake(address, wake, -1);
        if (compare(operation >> 24 & 15, old, comparand)) {
            woken += futexes.wake(other, wakeOther, -1);
        }
        return woken;
    }

    private static boolean compare(int how, int a, int b) {
        switch (how) {
            case 0:
                return a == b;
            case 1:
                return a != b;
            case 2:
                return a < b;
            case 3:
                return a <= b;
            case 4:
                return a > b;
            default:
                return a >= b;
        }
    }

    static int affinity(GuestThread t, int length, int mask) throws Errno {
        int processors = Math.min(Runtime.getRuntime().availableProcessors(), length * 8);
        if (length < 4) {
            throw new Errno(Errno.EINVAL);
        }
        int bytes = Math.min(length, 128) & -4;
        java.util.Arrays.fill(t.memory, mask, mask + bytes, (byte) 0);
        for (int i = 0; i < processors && i < bytes * 8; i++) {
            int word = mask + i / 32 * 4;
            t.store(word, t.load(word) | 1 << i % 32);
        }
        return bytes;
    }
}
