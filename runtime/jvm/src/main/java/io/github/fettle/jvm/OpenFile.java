package io.github.fettle.jvm;

import java.io.IOException;

/** An open file: what descriptors that were duplicated share. */
abstract class OpenFile {
    /** Access mode and status flags as {@code fcntl(F_GETFL)} gives them. */
    int flags;

    /** The guest's name of it, for what works relative to a directory; null without one. */
    String path;

    private int references = 1;

    OpenFile(int flags) {
        this.flags = flags;
    }

    final synchronized void retain() {
        references++;
    }

    final void release() throws IOException {
        synchronized (this) {
            if (--references > 0) {
                return;
            }
        }
        close();
    }

    /** Bytes read; 0 at the end. May wait. */
    abstract int read(GuestThread t, byte[] to, int at, int length) throws IOException;

    /** Writes at least one byte unless length is 0. */
    abstract int write(GuestThread t, byte[] from, int at, int length) throws IOException;

    int readAt(byte[] to, int at, int length, long position) throws IOException {
        throw new Errno(Errno.ESPIPE);
    }

    int writeAt(byte[] from, int at, int length, long position) throws IOException {
        throw new Errno(Errno.ESPIPE);
    }

    long seek(long offset, int whence) throws IOException {
        throw new Errno(Errno.ESPIPE);
    }

    void truncate(long size) throws IOException {
        throw new Errno(Errno.EINVAL);
    }

    void sync() throws IOException {}

    abstract Attributes attributes() throws IOException;

    /** Which of POLLIN, POLLOUT, POLLHUP and POLLERR hold now. */
    int ready() throws IOException {
        return Flags.POLLIN | Flags.POLLOUT;
    }

    boolean isTerminal() {
        return false;
    }

    void close() throws IOException {}

    final boolean nonBlocking() {
        return (flags & Flags.O_NONBLOCK) != 0;
    }
}
