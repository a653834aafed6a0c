package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** System calls that take names of files. */
final class PathCalls {
    static final int AT_FDCWD = -100;
    private static final int AT_SYMLINK_NOFOLLOW = 0x100;
    private static final int AT_REMOVEDIR = 0x200;
    private static final int AT_SYMLINK_FOLLOW = 0x400;
    private static final int AT_EMPTY_PATH = 0x1000;

    private static final int UTIME_NOW = 0x3fff_ffff;
    private static final int UTIME_OMIT = 0x3fff_fffe;
    private static final int RENAME_NOREPLACE = 1;

    private static final int BLOCK = 4096;
    private static final int STATX_BASIC = 0x7ff;

    private PathCalls() {}

    static String text(GuestThread t, int address) throws Errno {
        if (address <= 0) {
            throw new Errno(Errno.EFAULT);
        }
        int end = address;
        while (t.memory[end] != 0) {
            end++;
        }
        return new String(t.memory, address, end - address, StandardCharsets.UTF_8);
    }

    /** What a relative name starts from. */
    private static String base(GuestThread t, int descriptor, String name) throws Errno {
        if (descriptor == AT_FDCWD || name.startsWith("/")) {
            return t.guest.vfs.workingDirectory;
        }
        OpenFile file = t.guest.files.get(descriptor);
        if (!(file instanceof OpenDirectory)) {
            throw new Errno(Errno.ENOTDIR);
        }
        return file.path;
    }

    static int open(GuestThread t, int directory, int path, int flags, int mode)
            throws IOException {
        String name = text(t, path);
        OpenFile file = t.guest.vfs.open(base(t, directory, name), name, flags, mode);
        return t.guest.files.add(file, (flags & Flags.O_CLOEXEC) != 0);
    }

    static int stat(GuestThread t, int directory, int path, int buffer, int flags)
            throws IOException {
        writeStat(t, buffer, find(t, directory, path, flags));
        return 0;
    }

    static int statDescriptor(GuestThread t, int descriptor, int buffer) throws IOException {
        writeStat(t, buffer, t.guest.files.get(descriptor).attributes());
        return 0;
    }

    private static Attributes find(GuestThread t, int directory, int path, int flags)
            throws IOException {
        String name = text(t, path);
        if (name.isEmpty() && (flags & AT_EMPTY_PATH) != 0) {
            if (directory != AT_FDCWD) {
                return t.guest.files.get(directory).attributes();
            }
            name = ".";
        }
        boolean follow = (flags & AT_SYMLINK_NOFOLLOW) == 0;
        return t.guest.vfs.at(
                base(t, directory, name), name, follow, place -> place.existing().attributes);
    }

    /** {@code struct stat64}. */
    private static void writeStat(GuestThread t, int at, Attributes a) {
        java.util.Arrays.fill(t.memory, at, at + 104, (byte) 0);
        t.store(at, (int) a.device);
        t.storeLong(at + 16, a.inode);
        t.store(at + 24, a.mode);
        t.store(at + 28, a.links);
        t.store(at + 32, a.user);
        t.store(at + 36, a.group);
        t.store(at + 40, a.special);
        t.storeLong(at + 56, a.size);
        time(t, at + 64, a.accessed);
        time(t, at + 72, a.modified);
        time(t, at + 80, a.changed);
        t.store(at + 88, BLOCK);
        t.storeLong(at + 96, (a.size + 511) / 512);
    }

    private static void time(GuestThread t, int at, long nanoseconds) {
        t.store(at, (int) Math.floorDiv(nanoseconds, Clock.SECOND));
        t.store(at + 4, (int) Math.floorMod(nanoseconds, Clock.SECOND));
    }

    static int statx(GuestThread t, int directory, int path, int flags, int at)
            throws IOException {
        Attributes a = find(t, directory, path, flags);
        java.util.Arrays.fill(t.memory, at, at + 256, (byte) 0);
        t.store(at, STATX_BASIC);
        t.store(at + 4, BLOCK);
        t.store(at + 16, a.links);
        t.store(at + 20, a.user);
        t.store(at + 24, a.group);
        t.storeShort(at + 28, a.mode);
        t.storeLong(at + 32, a.inode);
        t.storeLong(at + 40, a.size);
        t.storeLong(at + 48, (a.size + 511) / 512);
        timeLong(t, at + 64, a.accessed);
        timeLong(t, at + 96, a.changed);
        timeLong(t, at + 112, a.modified);
        t.store(at + 128, a.special >> 8 & 0xfff);
        t.store(at + 132, a.special & 0xff);
        t.store(at + 136, (int) (a.device >> 8 & 0xfff));
        t.store(at + 140, (int) (a.device & 0xff));
        return 0;
    }

    private static void timeLong(GuestThread t, int at, long nanoseconds) {
        t.storeLong(at, Math.floorDiv(nanoseconds, Clock.SECOND));
        t.store(at + 8, (int) Math.floorMod(nanoseconds, Clock.SECOND));
    }

    static int statFileSystem(GuestThread t, int at) {
        java.util.Arrays.fill(t.memory, at, at + 96, (byte) 0);
        t.store(at, 0x0102_1994); // tmpfs: what is true of the tree in memory
        t.store(at + 4, BLOCK);
        t.store(at + 8, BLOCK);
        for (int field : new int[] {16, 24, 32, 40, 48}) {
            t.storeLong(at + field, 1 << 20);
        }
        t.store(at + 64, 255);
        return 0;
    }

    static int access(GuestThread t, int directory, int path, int how) throws IOException {
        Attributes a = find(t, directory, path, 0);
        int permission = Identity.USER == a.user
                ? a.mode >> 6
                : Identity.GROUP == a.group ? a.mode >> 3 : a.mode;
        boolean root = Identity.USER == 0 && ((how & 1) == 0 || (a.mode & 0111) != 0);
        if (!root && (how & 7 & ~permission) != 0) {
            throw new Errno(Errno.EACCES);
        }
        String name = text(t, path);
        boolean writable = t.guest.vfs.at(base(t, directory, name), name, true,
                place -> place.tree.writable() || place.tree instanceof DeviceTree);
        if ((how & 2) != 0 && !writable) {
            throw new Errno(Errno.EROFS);
        }
        return 0;
    }

    static int readLink(GuestThread t, int directory, int path, int to, int length)
            throws IOException {
        String name = text(t, path);
        String target = name.equals("/proc/self/exe")
                ? t.guest.vfs.executable()
                : t.guest.vfs.at(base(t, directory, name), name, false, t.guest.vfs::readLink);
        if (length <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        byte[] bytes = target.getBytes(StandardCharsets.UTF_8);
        int count = Math.min(length, bytes.length);
        System.arraycopy(bytes, 0, t.memory, to, count);
        return count;
    }

    static int unlink(GuestThread t, int directory, int path, int flags) throws IOException {
        String name = text(t, path);
        return t.guest.vfs.at(base(t, directory, name), name, false, place -> {
            place.existing();
            if (place.inTree.isEmpty()) {
                throw new Errno(Errno.EBUSY);
            }
            place.tree.remove(place.inTree, (flags & AT_REMOVEDIR) != 0);
            return 0;
        });
    }

    static int mkdir(GuestThread t, int directory, int path, int mode) throws IOException {
        String name = text(t, path);
        return t.guest.vfs.at(base(t, directory, name), name, false, place -> {
            place.absent().tree.mkdir(place.inTree, mode & ~t.guest.vfs.umask);
            return 0;
        });
    }

    static int rename(
            GuestThread t, int fromDirectory, int from, int toDirectory, int to, int flags)
            throws IOException {
        if ((flags & ~RENAME_NOREPLACE) != 0) {
            throw new Errno(Errno.EINVAL);
        }
        String a = text(t, from);
        String b = text(t, to);
        return t.guest.vfs.atBoth(
                base(t, fromDirectory, a), a, false, base(t, toDirectory, b), b, (old, place) -> {
                    old.existing();
                    if (flags == RENAME_NOREPLACE) {
                        place.absent();
                    }
                    requireSameTree(old, place);
                    old.tree.rename(old.inTree, place.inTree);
                    return 0;
                });
    }

    private static void requireSameTree(Vfs.Place a, Vfs.Place b) throws Errno {
        if (a.tree != b.tree) {
            throw new Errno(Errno.EXDEV);
        }
        if (a.inTree.isEmpty() || b.inTree.isEmpty()) {
            throw new Errno(Errno.EBUSY);
        }
    }

    static int link(GuestThread t, int fromDirectory, int from, int toDirectory, int to, int flags)
            throws IOException {
        String a = text(t, from);
        String b = text(t, to);
        boolean follow = (flags & AT_SYMLINK_FOLLOW) != 0;
        return t.guest.vfs.atBoth(
                base(t, fromDirectory, a), a, follow, base(t, toDirectory, b), b, (old, place) -> {
                    old.existing();
                    place.absent();
                    requireSameTree(old, place);
                    old.tree.link(old.inTree, place.inTree);
                    return 0;
                });
    }

    static int symlink(GuestThread t, int target, int directory, int path) throws IOException {
        String text = text(t, target);
        String name = text(t, path);
        if (text.isEmpty()) {
            throw new Errno(Errno.ENOENT);
        }
        return t.guest.vfs.at(base(t, directory, name), name, false, place -> {
            place.absent().tree.symlink(text, place.inTree);
            return 0;
        });
    }

    static int chmod(GuestThread t, int directory, int path, int mode) throws IOException {
        String name = text(t, path);
        return chmod(t, base(t, directory, name), name, mode);
    }

    static int chmodDescriptor(GuestThread t, int descriptor, int mode) throws IOException {
        OpenFile file = t.guest.files.get(descriptor);
        if (file.path == null) {
            throw new Errno(Errno.EINVAL);
        }
        return chmod(t, "/", file.path, mode);
    }

    private static int chmod(GuestThread t, String base, String name, int mode)
            throws IOException {
        return t.guest.vfs.at(base, name, true, place -> {
            place.existing().tree.chmod(place.inTree, mode);
            return 0;
        });
    }

    /** Only to the owner that it has: others need more rights than a JVM should have. */
    static int chown(GuestThread t, int directory, int path, int user, int group, int flags)
            throws IOException {
        return checkOwner(find(t, directory, path, flags), user, group);
    }

    static int chownDescriptor(GuestThread t, int descriptor, int user, int group)
            throws IOException {
        return checkOwner(t.guest.files.get(descriptor).attributes(), user, group);
    }

    private static int checkOwner(Attributes a, int user, int group) throws Errno {
        if (user != -1 && user != a.user || group != -1 && group != a.group) {
            throw new Errno(Errno.EPERM);
        }
        return 0;
    }

    static int truncate(GuestThread t, int path, long size) throws IOException {
        String name = text(t, path);
        String base = base(t, AT_FDCWD, name);
        OpenFile file = t.guest.vfs.open(base, name, Flags.O_WRONLY, 0);
        try {
            file.truncate(size);
        } finally {
            file.release();
        }
        return 0;
    }

    /** {@code utimensat}; times are two {@code timespec}s of 32 or 64 bits. */
    static int setTimes(
            GuestThread t, int directory, int path, int times, int flags, boolean wide)
            throws IOException {
        String name;
        String base;
        if (path == 0) {
            base = "/";
            name = t.guest.files.get(directory).path;
            if (name == null) {
                throw new Errno(Errno.EINVAL);
            }
        } else {
            name = text(t, path);
            base = base(t, directory, name);
        }
        long accessed = fileTime(t, times, wide);
        long modified = fileTime(t, times == 0 ? 0 : times + (wide ? 16 : 8), wide);
        return t.guest.vfs.at(base, name, (flags & AT_SYMLINK_NOFOLLOW) == 0, place -> {
            place.existing().tree.setTimes(place.inTree, accessed, modified);
            return 0;
        });
    }

    private static long fileTime(GuestThread t, int at, boolean wide) {
        if (at == 0) {
            return t.guest.clock.realtime();
        }
        int nanoseconds = wide ? (int) t.loadLong(at + 8) : t.load(at + 4);
        if (nanoseconds == UTIME_NOW) {
            return t.guest.clock.realtime();
        }
        if (nanoseconds == UTIME_OMIT) {
            return Long.MIN_VALUE;
        }
        return (wide ? t.loadLong(at) : t.load(at)) * Clock.SECOND + nanoseconds;
    }

    static int changeDirectory(GuestThread t, int path) throws IOException {
        String name = text(t, path);
        return enter(t, t.guest.vfs.workingDirectory, name);
    }

    static int changeDirectoryDescriptor(GuestThread t, int descriptor) throws IOException {
        OpenFile file = t.guest.files.get(descriptor);
        if (!(file instanceof OpenDirectory)) {
            throw new Errno(Errno.ENOTDIR);
        }
        return enter(t, "/", file.path);
    }

    private static int enter(GuestThread t, String base, String name) throws IOException {
        t.guest.vfs.workingDirectory = t.guest.vfs.at(base, name, true, place -> {
            if (!place.existing().attributes.isDirectory()) {
                throw new Errno(Errno.ENOTDIR);
            }
            return place.path;
        });
        return 0;
    }

    static int workingDirectory(GuestThread t, int to, int length) throws Errno {
        byte[] bytes = t.guest.vfs.workingDirectory.getBytes(StandardCharsets.UTF_8);
        if (bytes.length + 1 > length) {
            throw new Errno(Errno.ERANGE);
        }
        System.arraycopy(bytes, 0, t.memory, to, bytes.length);
        t.memory[to + bytes.length] = 0;
        return bytes.length + 1;
    }
}
