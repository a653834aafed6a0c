package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** A regular file of the host. */
final class HostFile extends OpenFile {
    /** How the attributes are read: the path may be gone while the file is open. */
    interface Stat {
        Attributes read() throws IOException;
    }

    final FileChannel channel;
    private final Stat stat;

    HostFile(int flags, FileChannel channel, Stat stat) {
        super(flags);
        this.channel = channel;
        this.stat = stat;
    }

    @Override
    synchronized int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        return Math.max(0, channel.read(ByteBuffer.wrap(to, at, length)));
    }

    @Override
    synchronized int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        if ((flags & Flags.O_APPEND) != 0) {
            channel.position(channel.size());
        }
        return channel.write(ByteBuffer.wrap(from, at, length));
    }

    @Override
    int readAt(byte[] to, int at, int length, long position) throws IOException {
        return Math.max(0, channel.read(ByteBuffer.wrap(to, at, length), position));
    }

    @Override
    int writeAt(byte[] from, int at, int length, long position) throws IOException {
        return channel.write(ByteBuffer.wrap(from, at, length), position);
    }

    @Override
    synchronized long seek(long offset, int whence) throws IOException {
        long base = whence == 0 ? 0 : whence == 1 ? channel.position() : channel.size();
        if (whence < 0 || whence > 2 || base + offset < 0) {
            throw new Errno(Errno.EINVAL);
        }
        channel.position(base + offset);
        return base + offset;
    }

    @Override
    synchronized void truncate(long size) throws IOException {
        if (!Flags.writes(flags)) {
            throw new Errno(Errno.EINVAL);
        }
        long position = channel.position();
        if (size < channel.size()) {
            channel.truncate(size);
        } else if (size > channel.size()) {
            channel.write(ByteBuffer.allocate(1), size - 1);
        }
        channel.position(position);
    }

    @Override
    void sync() throws IOException {
        channel.force(true);
    }

    @Override
    Attributes attributes() throws IOException {
        Attributes attributes = stat.read();
        attributes.size = channel.size();
        return attributes;
    }

    @Override
    void close() throws IOException {
        channel.close();
    }
}
