package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** System calls on open files. */
final class FileCalls {
    private static final int F_DUPFD = 0;
    private static final int F_GETFD = 1;
    private static final int F_SETFD = 2;
    private static final int F_GETFL = 3;
    private static final int F_SETFL = 4;
    private static final int F_SETLK = 6;
    private static final int F_SETLKW = 7;
    private static final int F_GETLK = 14;
    private static final int F_GETLK64 = 33;
    private static final int F_SETLK64 = 34;
    private static final int F_SETLKW64 = 35;
    private static final int F_DUPFD_CLOEXEC = 0x406;
    private static final int F_UNLCK = 2;
    private static final int SETTABLE = Flags.O_APPEND | Flags.O_NONBLOCK;

    private static final int TCGETS = 0x540d;
    private static final int TIOCGWINSZ = 0x4008_7468;
    private static final int TIOCGPGRP = 0x4004_7477;
    private static final int FIONREAD = 0x467f;
    private static final int FIONBIO = 0x667e;
    private static final int FIOCLEX = 0x6601;
    private static final int FIONCLEX = 0x6602;

    /** What one call moves at most, as Linux has it. */
    private static final int MOST = 0x7fff_f000;

    private FileCalls() {}

    private static OpenFile file(GuestThread t, int descriptor) throws Errno {
        return t.guest.files.get(descriptor);
    }

    static int read(GuestThread t, int descriptor, int to, int length) throws IOException {
        OpenFile file = file(t, descriptor);
        if (!Flags.reads(file.flags)) {
            throw new Errno(Errno.EBADF);
        }
        int count = checked(t, to, length);
        if (file instanceof EventCounter) {
            if (length < 8) {
                throw new Errno(Errno.EINVAL);
            }
            t.storeLong(to, ((EventCounter) file).take(t));
            return 8;
        }
        return file.read(t, t.memory, to, count);
    }

    static int write(GuestThread t, int descriptor, int from, int length) throws IOException {
        OpenFile file = file(t, descriptor);
        if (!Flags.writes(file.flags)) {
            throw new Errno(Errno.EBADF);
        }
        int count = checked(t, from, length);
        if (file instanceof EventCounter) {
            if (length < 8) {
                throw new Errno(Errno.EINVAL);
            }
            ((EventCounter) file).add(t, t.loadLong(from));
            return 8;
        }
        try {
            return file.write(t, t.memory, from, count);
        } catch (IOException e) {
            if (Errno.of(e) == Errno.EPIPE) {
                t.guest.signals.raise(Signals.PIPE, t, Signals.SI_USER, 0);
            }
            throw e;
        }
    }

    /** The part of a buffer that lies in memory: a partial transfer, or EFAULT. */
    private static int checked(GuestThread t, int at, int length) throws Errno {
        if (length < 0) {
            throw new Errno(Errno.EINVAL);
        }
        if (length > 0 && (at < 0 || at >= t.memory.length)) {
            throw new Errno(Errno.EFAULT);
        }
        return Math.min(Math.min(length, MOST), Math.max(0, t.memory.length - at));
    }

    static int readVector(GuestThread t, int descriptor, int vector, int count)
            throws IOException {
        int done = 0;
        for (int i = 0; i < count; i++) {
            int length = t.load(vector + i * 8 + 4);
            if (length == 0) {
                continue;
            }
            if (done > 0 && (file(t, descriptor).ready() & Flags.POLLIN) == 0) {
                break; // what came is enough: the next piece would wait
            }
            int moved = read(t, descriptor, t.load(vector + i * 8), length);
            done += moved;
            if (moved < length) {
                break;
            }
        }
        return done;
    }

    static int writeVector(GuestThread t, int descriptor, int vector, int count)
            throws IOException {
        file(t, descriptor);
        int done = 0;
        for (int i = 0; i < count; i++) {
            int length = t.load(vector + i * 8 + 4);
            if (length == 0) {
                continue;
            }
            int moved;
            try {
                moved = write(t, descriptor, t.load(vector + i * 8), length);
            } catch (IOException e) {
                if (done > 0) {
                    break;
                }
                throw e;
            }
            done += moved;
            if (moved < length) {
                break;
            }
        }
        return done;
    }

    static int readAt(GuestThread t, int descriptor, int to, int length, long position)
            throws IOException {
        OpenFile file = file(t, descriptor);
        if (!Flags.reads(file.flags)) {
            throw new Errno(Errno.EBADF);
        }
        requirePosition(position);
        return file.readAt(t.memory, to, checked(t, to, length), position);
    }

    static int writeAt(GuestThread t, int descriptor, int from, int length, long position)
            throws IOException {
        OpenFile file = file(t, descriptor);
        if (!Flags.writes(file.flags)) {
            throw new Errno(Errno.EBADF);
        }
        requirePosition(position);
        return file.writeAt(t.memory, from, checked(t, from, length), position);
    }

    private static void requirePosition(long position) throws Errno {
        if (position < 0) {
            throw new Errno(Errno.EINVAL);
        }
    }

    static int seek(GuestThread t, int descriptor, int offset, int whence) throws IOException {
        long position = file(t, descriptor).seek(offset, whence);
        if (position > Integer.MAX_VALUE) {
            throw new Errno(Errno.EOVERFLOW);
        }
        return (int) position;
    }

    static int seekLong(GuestThread t, int descriptor, int high, int low, int result, int whence)
            throws IOException {
        long offset = (long) high << 32 | low & 0xffff_ffffL;
        t.storeLong(result, file(t, descriptor).seek(offset, whence));
        return 0;
    }

    static int truncate(GuestThread t, int descriptor, long size) throws IOException {
        if (size < 0) {
            throw new Errno(Errno.EINVAL);
        }
        file(t, descriptor).truncate(size);
        return 0;
    }

    /** {@code fallocate} without mode bits: the file gets at least this size. */
    static int allocate(GuestThread t, int descriptor, int mode, long offset, long length)
            throws IOException {
        if (mode != 0) {
            throw new Errno(Errno.EOPNOTSUPP);
        }
        if (offset < 0 || length <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        OpenFile file = file(t, descriptor);
        if (file.attributes().size < offset + length) {
            file.truncate(offset + length);
        }
        return 0;
    }

    static int sync(GuestThread t, int descriptor) throws IOException {
        file(t, descriptor).sync();
        return 0;
    }

    static int pipe(GuestThread t, int result, int flags) throws IOException {
        Pipe pipe = new Pipe(t.guest.waits);
        boolean closes = (flags & Flags.O_CLOEXEC) != 0;
        int status = flags & Flags.O_NONBLOCK;
        int in = t.guest.files.add(new PipeEnd(status, pipe, null, Flags.S_IFIFO), closes);
        int out =
                t.guest.files.add(
                        new PipeEnd(status | Flags.O_WRONLY, null, pipe, Flags.S_IFIFO), closes);
        if (result != 0) {
            t.store(result, in);
            t.store(result + 4, out);
            return 0;
        }
        t.v1 = out;
        return in;
    }

    static int eventCounter(GuestThread t, int initial, int flags) throws IOException {
        boolean closes = (flags & Flags.O_CLOEXEC) != 0;
        int status = flags & Flags.O_NONBLOCK;
        return t.guest.files.add(
                new EventCounter(t.guest, status, initial, (flags & 1) != 0), closes);
    }

    static int control(GuestThread t, int descriptor, int command, int argument)
            throws IOException {
        FileTable files = t.guest.files;
        OpenFile file = file(t, descriptor);
        switch (command) {
            case F_DUPFD:
                return files.duplicate(descriptor, argument, false);
            case F_DUPFD_CLOEXEC:
                return files.duplicate(descriptor, argument, true);
            case F_GETFD:
                return files.closesOnExec(descriptor) ? 1 : 0;
            case F_SETFD:
                files.setCloseOnExec(descriptor, (argument & 1) != 0);
                return 0;
            case F_GETFL:
                return file.flags & ~(Flags.O_CREAT | Flags.O_EXCL | Flags.O_TRUNC | Flags.O_CLOEXEC);
            case F_SETFL:
                file.flags = file.flags & ~SETTABLE | argument & SETTABLE;
                return 0;
            case F_GETLK:
            case F_GETLK64:
                // Locks are between processes, and the guest is its files' only process here.
                t.storeShort(argument, F_UNLCK);
                return 0;
            case F_SETLK:
            case F_SETLKW:
            case F_SETLK64:
            case F_SETLKW64:
                return 0;
            default:
                throw new Errno(Errno.EINVAL);
        }
    }

    static int ioctl(GuestThread t, int descriptor, int request, int argument)
            throws IOException {
        OpenFile file = file(t, descriptor);
        switch (request) {
            case FIONBIO:
                file.flags = t.load(argument) != 0
                        ? file.flags | Flags.O_NONBLOCK
                        : file.flags & ~Flags.O_NONBLOCK;
                return 0;
            case FIOCLEX:
            case FIONCLEX:
                t.guest.files.setCloseOnExec(descriptor, request == FIOCLEX);
                return 0;
            case FIONREAD:
                t.store(argument, available(file));
                return 0;
            case TCGETS:
                requireTerminal(file);
                Terminal.attributes(t, argument);
                return 0;
            case TIOCGWINSZ:
                requireTerminal(file);
                Terminal.size(t, argument);
                return 0;
            case TIOCGPGRP:
                requireTerminal(file);
                t.store(argument, Identity.PROCESS);
                return 0;
            default:
                throw new Errno(Errno.ENOTTY);
        }
    }

    private static void requireTerminal(OpenFile file) throws Errno {
        if (!file.isTerminal()) {
            throw new Errno(Errno.ENOTTY);
        }
    }

    private static int available(OpenFile file) throws IOException {
        if (file instanceof PipeEnd) {
            return ((PipeEnd) file).available();
        } else if (file instanceof SocketFile) {
            return ((SocketFile) file).available();
        }
        long position = file.seek(0, 1);
        return (int) Math.min(Integer.MAX_VALUE, file.attributes().size - position);
    }

    /** {@code getdents64}. */
    static int entries(GuestThread t, int descriptor, int to, int length) throws IOException {
        OpenFile file = file(t, descriptor);
        if (!(file instanceof OpenDirectory)) {
            throw new Errno(Errno.ENOTDIR);
        }
        OpenDirectory directory = (OpenDirectory) file;
        int at = to;
        while (true) {
            OpenDirectory.Entry entry = directory.peek();
            if (entry == null) {
                return at - to;
            }
            byte[] name = entry.name.getBytes(StandardCharsets.UTF_8);
            int size = 19 + name.length + 1 + 7 & -8;
            if (at + size > to + length) {
                if (at == to) {
                    throw new Errno(Errno.EINVAL);
                }
                return at - to;
            }
            java.util.Arrays.fill(t.memory, at, at + size, (byte) 0);
            t.storeLong(at, entry.inode);
            t.storeLong(at + 8, directory.advance());
            t.storeShort(at + 16, size);
            t.memory[at + 18] = (byte) entry.type;
            System.arraycopy(name, 0, t.memory, at + 19, name.length);
            at += size;
        }
    }

    static int send(GuestThread t, int out, int in, int offset, boolean wide, int count)
            throws IOException {
        OpenFile source = file(t, in);
        byte[] buffer = new byte[Math.min(count, 65536)];
        long position = offset == 0 ? -1 : wide ? t.loadLong(offset) : t.load(offset);
        int done = 0;
        while (done < count) {
            int wanted = Math.min(buffer.length, count - done);
            int got = position < 0
                    ? source.read(t, buffer, 0, wanted)
                    : source.readAt(buffer, 0, wanted, position + done);
            if (got <= 0) {
                break;
            }
            for (int sent = 0; sent < got; ) {
                sent += file(t, out).write(t, buffer, sent, got - sent);
            }
            done += got;
        }
        if (position >= 0 && wide) {
            t.storeLong(offset, position + done);
        } else if (position >= 0) {
            t.store(offset, (int) (position + done));
        }
        return done;
    }
}
