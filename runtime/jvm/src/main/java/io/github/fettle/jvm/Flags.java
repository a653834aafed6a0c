package io.github.fettle.jvm;

/** Bits of {@code open}, {@code poll} and file modes, as Linux on MIPS numbers them. */
final class Flags {
    static final int O_ACCESS = 3;
    static final int O_WRONLY = 1;
    static final int O_RDWR = 2;
    static final int O_APPEND = 0x8;
    static final int O_NONBLOCK = 0x80;
    static final int O_CREAT = 0x100;
    static final int O_TRUNC = 0x200;
    static final int O_EXCL = 0x400;
    static final int O_LARGEFILE = 0x2000;
    static final int O_DIRECTORY = 0x10000;
    static final int O_NOFOLLOW = 0x20000;
    static final int O_CLOEXEC = 0x80000;
    static final int O_PATH = 0x200000;
    static final int O_TMPFILE = 0x400000;

    static final int S_IFMT = 0xf000;
    static final int S_IFIFO = 0x1000;
    static final int S_IFCHR = 0x2000;
    static final int S_IFDIR = 0x4000;
    static final int S_IFREG = 0x8000;
    static final int S_IFLNK = 0xa000;
    static final int S_IFSOCK = 0xc000;

    static final int POLLIN = 1;
    static final int POLLOUT = 4;
    static final int POLLERR = 8;
    static final int POLLHUP = 16;
    static final int POLLNVAL = 32;

    private Flags() {}

    static boolean reads(int flags) {
        return (flags & O_ACCESS) != O_WRONLY;
    }

    static boolean writes(int flags) {
        return (flags & O_ACCESS) != 0;
    }
}
