package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** A directory of the host and what is below. */
final class HostTree extends FileTree {
    private final Path root;
    private final boolean writable;

    HostTree(Path root, boolean writable) {
        this.root = root.toAbsolutePath().normalize();
        this.writable = writable;
    }

    private Path path(String path) throws Errno {
        try {
            return path.isEmpty() ? root : root.resolve(path);
        } catch (java.nio.file.InvalidPathException e) {
            throw new Errno(Errno.ENOENT);
        }
    }

    private Path changing(String path) throws Errno {
        if (!writable) {
            throw new Errno(Errno.EROFS);
        }
        return path(path);
    }

    /** The host's name of a file, for what Java takes no channel for. */
    String hostPath(String path) throws Errno {
        return changing(path).toString();
    }

    @Override
    boolean writable() {
        return writable;
    }

    @Override
    Attributes stat(String path) throws IOException {
        try {
            return stat(path(path));
        } catch (NoSuchFileException e) {
            return null;
        } catch (IOException e) {
            if (Errno.of(e) == Errno.ENOTDIR) {
                return null;
            }
            throw e;
        }
    }

    private static Attributes stat(Path path) throws IOException {
        Attributes a = new Attributes();
        try {
            Map<String, Object> unix =
                    Files.readAttributes(
                            path,
                            "unix:mode,ino,dev,rdev,nlink,uid,gid,size,"
                                    + "lastAccessTime,lastModifiedTime,ctime",
                            LinkOption.NOFOLLOW_LINKS);
            a.mode = (int) unix.get("mode");
            a.inode = (long) unix.get("ino");
            a.device = (long) unix.get("dev");
            a.special = (int) (long) unix.get("rdev");
            a.links = (int) unix.get("nlink");
            a.user = (int) unix.get("uid");
            a.group = (int) unix.get("gid");
            a.size = (long) unix.get("size");
            a.accessed = nanoseconds(unix.get("lastAccessTime"));
            a.modified = nanoseconds(unix.get("lastModifiedTime"));
            a.changed = nanoseconds(unix.get("ctime"));
        } catch (UnsupportedOperationException | IllegalArgumentException e) {
            portable(path, a);
        }
        return a;
    }

    /** A host without Unix attributes. */
    private static void portable(Path path, Attributes a) throws IOException {
        BasicFileAttributes basic =
                Files.readAttributes(
                        path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
        int type = basic.isDirectory()
                ? Flags.S_IFDIR
                : basic.isSymbolicLink() ? Flags.S_IFLNK : Flags.S_IFREG;
        a.mode = type | (Files.isWritable(path) ? 0755 : 0555);
        a.inode = path.toString().hashCode() & 0x7fff_ffff;
        a.size = basic.size();
        a.accessed = nanoseconds(basic.lastAccessTime());
        a.modified = nanoseconds(basic.lastModifiedTime());
        a.changed = a.modified;
    }

    private static long nanoseconds(Object time) {
        return ((FileTime) time).to(TimeUnit.NANOSECONDS);
    }

    @Override
    String readLink(String path) throws IOException {
        return Files.readSymbolicLink(path(path)).toString();
    }

    @Override
    OpenFile open(String path, int flags, int mode) throws IOException {
        boolean writes = Flags.writes(flags);
        boolean creates = (flags & Flags.O_CREAT) != 0;
        if (!writable && (writes || (flags & Flags.O_TRUNC) != 0)) {
            throw new Errno(Errno.EROFS);
        }
        Path file = path(path);
        Attributes there = stat(path);
        if (there != null && there.isDirectory()) {
            if (writes || creates) {
                throw new Errno(Errno.EISDIR);
            }
            return new OpenDirectory(flags, () -> stat(file), () -> list(path));
        }
        if (there == null && !creates) {
            throw new Errno(Errno.ENOENT);
        }
        if (there == null && !writable) {
            throw new Errno(Errno.EROFS);
        }
        Set<OpenOption> how = new HashSet<>();
        if (Flags.reads(flags)) {
            how.add(StandardOpenOption.READ);
        }
        if (writes || there == null) {
            how.add(StandardOpenOption.WRITE);
        }
        if (there == null) {
            how.add(StandardOpenOption.CREATE_NEW);
        } else if ((flags & Flags.O_TRUNC) != 0) {
            how.add(StandardOpenOption.WRITE);
            how.add(StandardOpenOption.TRUNCATE_EXISTING);
        }
        how.add(LinkOption.NOFOLLOW_LINKS);
        FileChannel channel = FileChannel.open(file, how);
        if (there == null) {
            try {
                Files.setPosixFilePermissions(file, permissions(mode));
            } catch (UnsupportedOperationException e) {
                // The host has no permissions to set.
            }
        }
        // The file may be removed or renamed while it is open: then this is what it was last.
        Attributes[] last = {stat(file)};
        return new HostFile(flags, channel, () -> {
            try {
                Attributes now = stat(file);
                if (now.inode == last[0].inode) {
                    last[0] = now;
                } else {
                    last[0].links = 0;
                }
            } catch (NoSuchFileException e) {
                last[0].links = 0;
            }
            return last[0];
        });
    }

    private static Set<PosixFilePermission> permissions(int mode) {
        StringBuilder text = new StringBuilder("rwxrwxrwx");
        for (int i = 0; i < 9; i++) {
            if ((mode & 0400 >> i) == 0) {
                text.setCharAt(i, '-');
            }
        }
        return PosixFilePermissions.fromString(text.toString());
    }

    @Override
    List<OpenDirectory.Entry> list(String path) throws IOException {
        List<OpenDirectory.Entry> entries = new ArrayList<>();
        try (DirectoryStream<Path> stream = Files.newDirectoryStream(path(path))) {
            for (Path entry : stream) {
                try {
                    String name = entry.getFileName().toString();
                    entries.add(new OpenDirectory.Entry(name, stat(entry)));
                } catch (NoSuchFileException e) {
                    // Removed meanwhile.
                }
            }
        } catch (java.nio.file.DirectoryIteratorException e) {
            throw e.getCause();
        }
        return entries;
    }

    @Override
    void mkdir(String path, int mode) throws IOException {
        Path directory = changing(path);
        Files.createDirectory(directory);
        try {
            Files.setPosixFilePermissions(directory, permissions(mode));
        } catch (UnsupportedOperationException e) {
            // The host has no permissions to set.
        }
    }

    @Override
    void remove(String path, boolean directory) throws IOException {
        Path file = changing(path);
        boolean is = Files.isDirectory(file, LinkOption.NOFOLLOW_LINKS);
        if (is != directory) {
            throw new Errno(is ? Errno.EISDIR : Errno.ENOTDIR);
        }
        Files.delete(file);
    }

    @Override
    void rename(String from, String to) throws IOException {
        Path target = changing(to);
        if (Files.isDirectory(target, LinkOption.NOFOLLOW_LINKS)
                && !Files.isDirectory(path(from), LinkOption.NOFOLLOW_LINKS)) {
            throw new Errno(Errno.EISDIR);
        }
        Files.move(changing(from), target, StandardCopyOption.ATOMIC_MOVE);
    }

    @Override
    void symlink(String target, String path) throws IOException {
        Files.createSymbolicLink(changing(path), Paths.get(target));
    }

    @Override
    void link(String from, String to) throws IOException {
        Files.createLink(changing(to), path(from));
    }

    @Override
    void chmod(String path, int mode) throws IOException {
        Path file = changing(path);
        try {
            Files.setPosixFilePermissions(file, permissions(mode));
        } catch (UnsupportedOperationException e) {
            throw new Errno(Errno.EPERM);
        }
    }

    @Override
    void setTimes(String path, long accessed, long modified) throws IOException {
        BasicFileAttributeView view =
                Files.getFileAttributeView(
                        changing(path), BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS);
        view.setTimes(time(modified), time(accessed), null);
    }

    private static FileTime time(long nanoseconds) {
        return nanoseconds == Long.MIN_VALUE
                ? null
                : FileTime.from(nanoseconds, TimeUnit.NANOSECONDS);
    }
}
