package io.github.fettle.jvm;

import java.io.FileInputStream;
import java.io.IOException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** {@code /dev}: the devices that programs open by name. */
final class DeviceTree extends FileTree {
    private static final List<String> NAMES = List.of(
            "null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr");

    /** Where the host has random numbers, which Java has by way of a hundred classes. */
    private static final String HOST_RANDOM = "/dev/urandom";

    private final Vfs vfs;

    DeviceTree(Vfs vfs) {
        this.vfs = vfs;
    }

    static void random(byte[] to, int at, int length) {
        byte[] bytes = new byte[length];
        if (!isFilledByHost(bytes)) {
            new SecureRandom().nextBytes(bytes);
        }
        System.arraycopy(bytes, 0, to, at, length);
    }

    private static boolean isFilledByHost(byte[] bytes) {
        try (FileInputStream host = new FileInputStream(HOST_RANDOM)) {
            return host.readNBytes(bytes, 0, bytes.length) == bytes.length;
        } catch (IOException e) {
            return false;
        }
    }

    @Override
    Attributes stat(String path) {
        if (path.isEmpty()) {
            return Attributes.of(Flags.S_IFDIR | 0755, 1);
        }
        return NAMES.contains(path) ? device(path) : null;
    }

    private static Attributes device(String name) {
        Attributes attributes = Attributes.of(Flags.S_IFCHR | 0666, 2 + NAMES.indexOf(name));
        attributes.device = 5;
        attributes.special = 1 << 8 | 3 + NAMES.indexOf(name);
        return attributes;
    }

    @Override
    OpenFile open(String path, int flags, int mode) throws IOException {
        switch (path) {
            case "":
                return new OpenDirectory(flags, () -> stat(""), () -> list(""));
            case "tty":
                if (!vfs.files().get(0).isTerminal()) {
                    throw new Errno(Errno.ENXIO);
                }
                return shared(0);
            case "stdin":
                return shared(0);
            case "stdout":
                return shared(1);
            case "stderr":
                return shared(2);
            default:
                if (!NAMES.contains(path)) {
                    throw new Errno(Errno.ENOENT);
                }
                return new Device(flags, path);
        }
    }

    private OpenFile shared(int descriptor) throws IOException {
        OpenFile file = vfs.files().get(descriptor);
        file.retain();
        return file;
    }

    @Override
    List<OpenDirectory.Entry> list(String path) {
        List<OpenDirectory.Entry> entries = new ArrayList<>();
        NAMES.forEach(name -> entries.add(new OpenDirectory.Entry(name, device(name))));
        return entries;
    }

    private static final class Device extends OpenFile {
        private final String name;

        Device(int flags, String name) {
            super(flags);
            this.name = name;
        }

        @Override
        int read(GuestThread t, byte[] to, int at, int length) {
            switch (name) {
                case "null":
                    return 0;
                case "random":
                case "urandom":
                    random(to, at, length);
                    return length;
                default:
                    Arrays.fill(to, at, at + length, (byte) 0);
                    return length;
            }
        }

        @Override
        int readAt(byte[] to, int at, int length, long position) {
            return read(null, to, at, length);
        }

        @Override
        int write(GuestThread t, byte[] from, int at, int length) throws IOException {
            if (name.equals("full")) {
                throw new Errno(Errno.ENOSPC);
            }
            return length;
        }

        @Override
        long seek(long offset, int whence) {
            return 0;
        }

        @Override
        Attributes attributes() {
            return device(name);
        }
    }

    @Override
    boolean writable() {
        return false;
    }

    @Override
    String readLink(String path) throws IOException {
        throw new Errno(Errno.EINVAL);
    }

    @Override
    void mkdir(String path, int mode) throws IOException {
        throw new Errno(Errno.EACCES);
    }

    @Override
    void remove(String path, boolean directory) throws IOException {
        throw new Errno(Errno.EACCES);
    }

    @Override
    void rename(String from, String to) throws IOException {
        throw new Errno(Errno.EACCES);
    }

    @Override
    void symlink(String target, String path) throws IOException {
        throw new Errno(Errno.EACCES);
    }

    @Override
    void link(String from, String to) throws IOException {
        throw new Errno(Errno.EACCES);
    }

    @Override
    void chmod(String path, int mode) throws IOException {
        throw new Errno(Errno.EPERM);
    }

    @Override
    void setTimes(String path, long accessed, long modified) {}
}
