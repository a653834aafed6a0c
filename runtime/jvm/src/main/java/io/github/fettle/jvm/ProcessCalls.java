package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** System calls on the process, its limits and the machine. */
final class ProcessCalls {
    private static final int RLIMIT_DATA = 2;
    private static final int RLIMIT_STACK = 3;
    private static final int RLIMIT_NOFILE = 5;
    private static final int RLIMIT_AS = 6;
    private static final int INFINITE = 0x7fff_ffff;
    private static final int NAME = 65;

    private ProcessCalls() {}

    static int uname(GuestThread t, int to) {
        String[] fields = {"Linux", "fettle", "5.10.0", "#1 SMP", "mips", "(none)"};
        java.util.Arrays.fill(t.memory, to, to + NAME * fields.length, (byte) 0);
        for (int i = 0; i < fields.length; i++) {
            byte[] bytes = fields[i].getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(bytes, 0, t.memory, to + i * NAME, bytes.length);
        }
        return 0;
    }

    private static long limit(GuestThread t, int resource) {
        switch (resource) {
            case RLIMIT_NOFILE:
                return FileTable.LIMIT;
            case RLIMIT_STACK:
                int size = t.guest.options.stackSize;
                return size != 0 ? size : 8 << 20;
            case RLIMIT_AS:
            case RLIMIT_DATA:
                return t.guest.limit;
            default:
                return -1;
        }
    }

    static int readLimit(GuestThread t, int resource, int to) {
        long limit = limit(t, resource);
        t.store(to, limit < 0 ? INFINITE : (int) limit);
        t.store(to + 4, limit < 0 ? INFINITE : (int) limit);
        return 0;
    }

    static int limit(GuestThread t, int process, int resource, int now, int before)
            throws Errno {
        if (process != 0 && process != Identity.PROCESS) {
            throw new Errno(Errno.ESRCH);
        }
        if (resource < 0 || resource > 15) {
            throw new Errno(Errno.EINVAL);
        }
        long limit = limit(t, resource);
        if (before != 0) {
            t.storeLong(before, limit);
            t.storeLong(before + 8, limit);
        }
        if (now != 0 && Long.compareUnsigned(t.loadLong(now), limit) > 0) {
            throw new Errno(Errno.EPERM); // lowering one changes nothing that a guest can see
        }
        return 0;
    }

    static int systemInfo(GuestThread t, int to) {
        java.util.Arrays.fill(t.memory, to, to + 64, (byte) 0);
        t.store(to, (int) (t.guest.clock.monotonic() / Clock.SECOND));
        t.store(to + 16, t.guest.limit);
        t.store(to + 20, Math.max(0, t.guest.limit - t.memory.length));
        t.storeShort(to + 40, t.guest.threads.all().length);
        t.store(to + 52, 1);
        return 0;
    }

    static int random(GuestThread t, int to, int length) throws IOException {
        if (length < 0 || to < 0 || to > t.memory.length - length) {
            throw new Errno(Errno.EFAULT);
        }
        DeviceTree.random(t.memory, to, length);
        return length;
    }

    static int umask(GuestThread t, int mask) {
        int before = t.guest.vfs.umask;
        t.guest.vfs.umask = mask & 0777;
        return before;
    }

    /** {@code getresuid} and its like: real, effective, saved. */
    static int identities(GuestThread t, int id, int a, int b, int c) {
        t.store(a, id);
        t.store(b, id);
        t.store(c, id);
        return 0;
    }

    /** Setting what it is already is allowed. */
    static int setIdentity(int now, int... ids) throws Errno {
        for (int id : ids) {
            if (id != -1 && id != now) {
                throw new Errno(Errno.EPERM);
            }
        }
        return 0;
    }

    static int groups(GuestThread t, int size, int to) throws Errno {
        if (size > 0) {
            t.store(to, Identity.GROUP);
        }
        return 1;
    }
}
