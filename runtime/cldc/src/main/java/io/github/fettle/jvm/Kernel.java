package io.github.fettle.jvm;

/**
 * Those of Linux's system calls for o32 MIPS that a program on a small device can make: memory, time,
 * output, files of the jar. The others fail with ENOSYS, as on a kernel that lacks them.
 */
public final class Kernel {
    // Errors, negative as the kernel returns them.
    static final int NOT_THERE = -2;
    static final int INPUT_OUTPUT = -5;
    static final int BAD_FILE = -9;
    static final int NO_MEMORY = -12;
    static final int FAULT = -14;
    static final int INVALID = -22;
    static final int TOO_MANY = -24;
    static final int NO_TERMINAL = -25;
    static final int NO_SEEK = -29;
    static final int READ_ONLY = -30;
    static final int NOT_IMPLEMENTED = -89;

    private static final int ERRORS = -4096;
    private static final int ANONYMOUS = 0x800;
    private static final int FIXED = 0x10;

    private Kernel() {}

    /** Makes a system call: what {@code v0} gets, and 1 for an error in the high word. */
    public static long call(GuestThread t, int number, int a0, int a1, int a2, int a3, int sp) {
        int result;
        try {
            result = number < 4200
                    ? early(t, number, a0, a1, a2, a3, sp)
                    : late(t, number, a0, a1, a2, a3, sp);
        } catch (IndexOutOfBoundsException e) {
            result = FAULT;
        }
        // mmap2 and brk return addresses, which are never that high.
        return result < 0 && result > ERRORS ? -result | 1L << 32 : result & 0xffffffffL;
    }

    private static int early(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp) {
        Guest guest = t.guest;
        switch (number) {
            case 4001: // exit
                throw new GuestExit(a0 & 255);
            case 4003: // read
                return guest.files.read(t, a0, a1, a2);
            case 4004: // write
                return guest.files.write(t, a0, a1, a2);
            case 4005: // open
                return guest.files.open(t.text(a0), a1);
            case 4006: // close
                return guest.files.close(a0);
            case 4013: // time
                if (a0 != 0) {
                    t.store(a0, (int) (System.currentTimeMillis() / 1000));
                }
                return (int) (System.currentTimeMillis() / 1000);
            case 4019: // lseek
                return guest.files.seek(a0, a1, a2);
            case 4020: // getpid
                return 1;
            case 4024: // the ids of user and group
            case 4047:
            case 4049:
            case 4050:
                return 0;
            case 4037: // kill
                return guest.signals.raise(t, a1, sp);
            case 4045:
                return guest.brk(t, a0);
            case 4054: // ioctl
                return NO_TERMINAL;
            case 4078: // gettimeofday
                t.store(a0, (int) (System.currentTimeMillis() / 1000));
                t.store(a0 + 4, (int) (System.currentTimeMillis() % 1000) * 1000);
                return 0;
            case 4090: // mmap
                return map(t, a0, a1, a3);
            case 4091: // munmap
                guest.unmap(a0, a1);
                return 0;
            case 4125: // mprotect
            case 4195: // rt_sigprocmask
                return 0;
            case 4140: // _llseek
                int position = guest.files.seek(a0, a2, t.load(sp + 16));
                if (position < 0) {
                    return position;
                }
                t.storeLong(a3, position);
                return 0;
            case 4145: // readv
            case 4146: // writev
                return vector(t, number == 4146, a0, a1, a2);
            case 4166: // nanosleep
                return sleep(t.load(a0), t.load(a0 + 4));
            case 4167: // mremap
                return remap(t, a0, a1, a2, a3);
            case 4194: // rt_sigaction
                return guest.signals.action(t, a0, a1, a2);
            default:
                return NOT_IMPLEMENTED;
        }
    }

    private static int late(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp) {
        Guest guest = t.guest;
        switch (number) {
            case 4210: // mmap2
                return map(t, a0, a1, a3);
            case 4218: // madvise
            case 4309: // set_robust_list
                return 0;
            case 4222: // gettid
            case 4252: // set_tid_address
                return 1;
            case 4238: // futex: there is no other thread to wait for or to wake
                return 0;
            case 4246: // exit_group
                throw new GuestExit(a0 & 255);
            case 4263: // clock_gettime
                t.store(a1, (int) (System.currentTimeMillis() / 1000));
                t.store(a1 + 4, (int) (System.currentTimeMillis() % 1000) * 1000000);
                return 0;
            case 4265: // clock_nanosleep
                return a1 != 0 ? INVALID : sleep(t.load(a2), t.load(a2 + 4));
            case 4266: // tgkill
                return guest.signals.raise(t, a2, sp);
            case 4283: // set_thread_area
                t.tls = a0;
                return 0;
            case 4288: // openat
                return guest.files.open(t.text(a1), a2);
            case 4353: // getrandom
                for (int i = 0; i < a1; i++) {
                    t.storeByte(a0 + i, (int) (System.currentTimeMillis() * 31 + i * 17));
                }
                return a1;
            case 4403: // clock_gettime64
                t.storeLong(a1, System.currentTimeMillis() / 1000);
                t.storeLong(a1 + 8, System.currentTimeMillis() % 1000 * 1000000);
                return 0;
            case 4407: // clock_nanosleep_time64
                return a1 != 0 ? INVALID : sleep(low(t, a2), low(t, a2 + 8));
            default:
                return NOT_IMPLEMENTED;
        }
    }

    /** The low word of a 64-bit number. */
    private static int low(GuestThread t, int address) {
        return t.load(t.guest.bigEndian ? address + 4 : address);
    }

    private static int map(GuestThread t, int address, int length, int flags) {
        if ((flags & ANONYMOUS) == 0 || (flags & FIXED) != 0) {
            return INVALID;
        }
        int from = t.guest.map(t, length);
        return from == 0 ? NO_MEMORY : from;
    }

    private static int remap(GuestThread t, int from, int old, int length, int flags) {
        if (length <= old) {
            return from;
        }
        int to = (flags & 1) == 0 ? 0 : t.guest.map(t, length);
        if (to == 0) {
            return NO_MEMORY;
        }
        System.arraycopy(t.memory, from >>> 2, t.memory, to >>> 2, old >>> 2);
        return to;
    }

    private static int vector(GuestThread t, boolean writes, int file, int list, int count) {
        int done = 0;
        for (int at = list; at < list + count * 8; at += 8) {
            int address = t.load(at);
            int length = t.load(at + 4);
            int part = writes
                    ? t.guest.files.write(t, file, address, length)
                    : t.guest.files.read(t, file, address, length);
            if (part < 0) {
                return done == 0 ? part : done;
            }
            done += part;
            if (part < length) {
                break;
            }
        }
        return done;
    }

    private static int sleep(int seconds, int nanoseconds) {
        try {
            Thread.sleep(seconds * 1000L + nanoseconds / 1000000);
        } catch (InterruptedException e) {
            return 0;
        }
        return 0;
    }
}
