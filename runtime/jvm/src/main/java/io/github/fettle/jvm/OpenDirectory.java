package io.github.fettle.jvm;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** An open directory: its names as they were when it was first read. */
final class OpenDirectory extends OpenFile {
    /** One name. */
    static final class Entry {
        final String name;
        final long inode;

        /** DT_REG and such: the file type's bits of the mode, shifted. */
        final int type;

        Entry(String name, Attributes attributes) {
            this.name = name;
            this.inode = attributes.inode;
            this.type = (attributes.mode & Flags.S_IFMT) >> 12;
        }
    }

    /** Lists the directory when it is read: most are opened for {@code openat} only. */
    interface Source {
        List<Entry> list() throws IOException;
    }

    private final HostFile.Stat stat;
    private final Source source;
    private List<Entry> entries;
    private int next;

    OpenDirectory(int flags, HostFile.Stat stat, Source source) {
        super(flags);
        this.stat = stat;
        this.source = source;
    }

    /** The next entry, or null at the end. */
    synchronized Entry peek() throws IOException {
        if (entries == null) {
            entries = new ArrayList<>();
            // Java leaves these two out. No program looks at the parent's number.
            entries.add(new Entry(".", stat.read()));
            entries.add(new Entry("..", stat.read()));
            entries.addAll(source.list());
        }
        return next < entries.size() ? entries.get(next) : null;
    }

    synchronized int advance() {
        return ++next;
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        throw new Errno(Errno.EISDIR);
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        throw new Errno(Errno.EBADF);
    }

    @Override
    synchronized long seek(long offset, int whence) throws IOException {
        if (whence != 0 && (whence != 1 || offset != 0)) {
            throw new Errno(Errno.EINVAL);
        }
        if (whence == 0) {
            if (offset == 0) {
                entries = null; // rewinddir sees what is there now
            }
            next = (int) offset;
        }
        return next;
    }

    @Override
    Attributes attributes() throws IOException {
        return stat.read();
    }
}
