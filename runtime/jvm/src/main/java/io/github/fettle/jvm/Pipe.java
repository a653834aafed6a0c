package io.github.fettle.jvm;

import java.io.IOException;

/** A pipe: a ring of bytes with two ends, under the monitor of the guest's waits. */
final class Pipe {
    private static final int CAPACITY = 65536;

    /** Writes up to this size are never mixed with others. */
    private static final int ATOMIC = 4096;

    private final Waits waits;
    private final byte[] ring = new byte[CAPACITY];
    private int start;
    private int count;
    private boolean readerGone;
    private boolean writerGone;

    Pipe(Waits waits) {
        this.waits = waits;
    }

    int read(GuestThread t, OpenFile file, byte[] to, int at, int length) throws IOException {
        synchronized (waits) {
            if (length == 0) {
                return 0;
            }
            if (count == 0 && !writerGone && file.nonBlocking()) {
                throw new Errno(Errno.EAGAIN);
            }
            waits.await(t, () -> count > 0 || writerGone, Waits.FOREVER);
            int done = Math.min(length, count);
            int first = Math.min(done, CAPACITY - start);
            System.arraycopy(ring, start, to, at, first);
            System.arraycopy(ring, 0, to, at + first, done - first);
            start = (start + done) % CAPACITY;
            count -= done;
            waits.changed();
            return done;
        }
    }

    int write(GuestThread t, OpenFile file, byte[] from, int at, int length) throws IOException {
        int done = 0;
        synchronized (waits) {
            while (done < length) {
                int need = length <= ATOMIC ? length - done : 1;
                if (!readerGone && CAPACITY - count < need) {
                    if (file.nonBlocking()) {
                        if (done > 0) {
                            return done;
                        }
                        throw new Errno(Errno.EAGAIN);
                    }
                    try {
                        waits.await(t, () -> readerGone || CAPACITY - count >= need, Waits.FOREVER);
                    } catch (Errno e) {
                        if (done > 0) {
                            return done;
                        }
                        throw e;
                    }
                }
                if (readerGone) {
                    throw new Errno(Errno.EPIPE);
                }
                done += put(from, at + done, length - done);
                waits.changed();
            }
        }
        return done;
    }

    private int put(byte[] from, int at, int length) {
        int done = Math.min(length, CAPACITY - count);
        int end = (start + count) % CAPACITY;
        int first = Math.min(done, CAPACITY - end);
        System.arraycopy(from, at, ring, end, first);
        System.arraycopy(from, at + first, ring, 0, done - first);
        count += done;
        return done;
    }

    int available() {
        synchronized (waits) {
            return count;
        }
    }

    int readableNow() {
        synchronized (waits) {
            return (count > 0 ? Flags.POLLIN : 0) | (writerGone ? Flags.POLLHUP : 0);
        }
    }

    int writableNow() {
        synchronized (waits) {
            return readerGone
                    ? Flags.POLLOUT | Flags.POLLERR
                    : CAPACITY - count >= ATOMIC ? Flags.POLLOUT : 0;
        }
    }

    void closeReader() {
        synchronized (waits) {
            readerGone = true;
            waits.changed();
        }
    }

    void closeWriter() {
        synchronized (waits) {
            writerGone = true;
            waits.changed();
        }
    }
}
