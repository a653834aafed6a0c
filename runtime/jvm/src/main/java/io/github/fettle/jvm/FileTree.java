package io.github.fettle.jvm;

import java.io.IOException;
import java.util.List;

/**
 * A tree of files that can be mounted.
 *
 * <p>Paths are relative to its root, "" being the root, without "." and "..", and no directory on
 * the way is a symbolic link: {@link Vfs} has followed those. A link as the last name is meant
 * itself.
 */
abstract class FileTree {
    /** Attributes of what is there, not following a link; null if nothing is. */
    abstract Attributes stat(String path) throws IOException;

    abstract String readLink(String path) throws IOException;

    abstract OpenFile open(String path, int flags, int mode) throws IOException;

    abstract List<OpenDirectory.Entry> list(String path) throws IOException;

    abstract void mkdir(String path, int mode) throws IOException;

    abstract void remove(String path, boolean directory) throws IOException;

    abstract void rename(String from, String to) throws IOException;

    abstract void symlink(String target, String path) throws IOException;

    abstract void link(String from, String to) throws IOException;

    abstract void chmod(String path, int mode) throws IOException;

    /** Sets times in nanoseconds; {@link Long#MIN_VALUE} leaves one. */
    abstract void setTimes(String path, long accessed, long modified) throws IOException;

    /** Whether it can be changed at all. */
    boolean writable() {
        return true;
    }
}
