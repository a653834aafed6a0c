package io.github.fettle.jvm;

import java.io.IOException;

/** One end of a pipe, or both directions of a socket pair: either pipe may be null. */
final class PipeEnd extends OpenFile {
    private static long nextInode = 1000;

    private final Pipe in;
    private final Pipe out;
    private final int type;
    private final long inode = nextInode++;
    private boolean inShut;

    PipeEnd(int flags, Pipe in, Pipe out, int type) {
        super(flags);
        this.in = in;
        this.out = out;
        this.type = type;
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        if (in == null) {
            throw new Errno(Errno.EBADF);
        }
        return inShut ? 0 : in.read(t, this, to, at, length);
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        if (out == null) {
            throw new Errno(Errno.EBADF);
        }
        return out.write(t, this, from, at, length);
    }

    boolean isSocket() {
        return type == Flags.S_IFSOCK;
    }

    int available() {
        return in == null ? 0 : in.available();
    }

    void shutdown(int how) {
        if (how != 1) {
            inShut = true;
        }
        if (how != 0 && out != null) {
            out.closeWriter();
        }
    }

    @Override
    int ready() {
        int bits = in == null ? 0 : in.readableNow();
        if (isSocket() && (bits & Flags.POLLHUP) != 0) {
            bits |= Flags.POLLIN;
        }
        return bits | (out == null ? 0 : out.writableNow());
    }

    @Override
    Attributes attributes() {
        Attributes attributes = Attributes.of(type | 0600, inode);
        attributes.size = 0;
        return attributes;
    }

    @Override
    void close() {
        if (in != null) {
            in.closeReader();
        }
        if (out != null) {
            out.closeWriter();
        }
    }
}
