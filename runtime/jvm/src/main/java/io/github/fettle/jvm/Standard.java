package io.github.fettle.jvm;

import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Descriptors 0, 1 and 2: the process's own, or Java streams. */
final class Standard extends OpenFile {
    /** A wait for input looks this often. */
    static final long INPUT_PERIOD = 2_000_000;

    private final int number;
    private final InputStream in;
    private final OutputStream out;

    /** The process's descriptor, which may be a file that has a position. */
    private final FileChannel channel;

    private Standard(int flags, int number, InputStream in, OutputStream out, FileChannel channel) {
        super(flags);
        this.number = number;
        this.in = in;
        this.out = out;
        this.channel = channel;
    }

    static OpenFile open(Options options, int number) {
        if (number == 0) {
            if (options.input != null || !options.console) {
                InputStream none = new ByteArrayInputStream(new byte[0]);
                return new Standard(
                        0, 0, options.input != null ? options.input : none, null, null);
            }
            FileInputStream in = new FileInputStream(FileDescriptor.in);
            return new Standard(0, 0, in, null, in.getChannel());
        }
        OutputStream stream = number == 1 ? options.output : options.error;
        if (stream != null || !options.console) {
            OutputStream none = new Nowhere();
            return new Standard(
                    Flags.O_WRONLY, number, null, stream != null ? stream : none, null);
        }
        FileOutputStream out = new FileOutputStream(Options.standard(number));
        return new Standard(Flags.O_WRONLY, number, null, out, out.getChannel());
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        if (in == null) {
            throw new Errno(Errno.EBADF);
        }
        if (nonBlocking() && in.available() == 0) {
            throw new Errno(Errno.EAGAIN);
        }
        return Math.max(0, in.read(to, at, length));
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        if (out == null) {
            throw new Errno(Errno.EBADF);
        }
        out.write(from, at, length);
        out.flush();
        return length;
    }

    @Override
    int readAt(byte[] to, int at, int length, long position) throws IOException {
        return Math.max(0, seekable().read(ByteBuffer.wrap(to, at, length), position));
    }

    @Override
    int writeAt(byte[] from, int at, int length, long position) throws IOException {
        return seekable().write(ByteBuffer.wrap(from, at, length), position);
    }

    private FileChannel seekable() throws IOException {
        if (channel == null || (attributes().mode & Flags.S_IFMT) != Flags.S_IFREG) {
            throw new Errno(Errno.ESPIPE);
        }
        return channel;
    }

    @Override
    long seek(long offset, int whence) throws IOException {
        FileChannel file = seekable();
        long base = whence == 0 ? 0 : whence == 1 ? file.position() : file.size();
        if (whence < 0 || whence > 2 || base + offset < 0) {
            throw new Errno(Errno.EINVAL);
        }
        file.position(base + offset);
        return base + offset;
    }

    @Override
    void truncate(long size) throws IOException {
        seekable().truncate(size);
    }

    @Override
    int ready() throws IOException {
        if (in == null) {
            return Flags.POLLOUT;
        }
        // At the end nothing is available, although a read would not wait; only a file tells.
        boolean file = channel != null && (attributes().mode & Flags.S_IFMT) == Flags.S_IFREG;
        return file || in.available() > 0 ? Flags.POLLIN : 0;
    }

    @Override
    boolean isTerminal() {
        if (channel == null) {
            return false;
        }
        try {
            String target = Files.readSymbolicLink(link()).toString();
            return target.startsWith("/dev/pts/") || target.startsWith("/dev/tty");
        } catch (IOException | RuntimeException e) {
            return System.console() != null;
        }
    }

    private Path link() {
        return Paths.get("/proc/self/fd/" + number);
    }

    @Override
    Attributes attributes() throws IOException {
        Attributes attributes = Attributes.of(Flags.S_IFIFO | 0600, 1 + number);
        if (channel == null) {
            return attributes;
        }
        try {
            attributes.mode = (int) Files.getAttribute(link(), "unix:mode");
            attributes.inode = (long) Files.getAttribute(link(), "unix:ino");
            attributes.device = (long) Files.getAttribute(link(), "unix:dev");
            attributes.special = (int) (long) Files.getAttribute(link(), "unix:rdev");
            attributes.size = (long) Files.getAttribute(link(), "unix:size");
        } catch (IOException | RuntimeException e) {
            attributes.mode = Flags.S_IFCHR | 0620;
        }
        return attributes;
    }

    @Override
    void close() throws IOException {
        if (out != null) {
            out.flush(); // and no more: the process goes on to use its descriptors
        }
    }

    /** What no one reads. */
    private static final class Nowhere extends OutputStream {
        @Override
        public void write(int b) {}

        @Override
        public void write(byte[] bytes, int from, int count) {}
    }
}
