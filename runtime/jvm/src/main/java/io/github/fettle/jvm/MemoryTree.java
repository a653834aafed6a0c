package io.github.fettle.jvm;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Files that live and die with the guest. */
final class MemoryTree extends FileTree {
    private static long nextInode = 2;

    /** A file, directory or link. */
    private static final class Node {
        final Attributes attributes;
        final Map<String, Node> children;
        String target;

        /** The first {@link #size} are the file; the rest, zeros, is room to grow. */
        byte[] bytes = {};

        int size;

        Node(int mode) {
            attributes = Attributes.of(mode, nextInode++);
            children = attributes.isDirectory() ? new TreeMap<>() : null;
            touch();
        }

        void touch() {
            long now = System.currentTimeMillis() * 1_000_000;
            attributes.accessed = now;
            attributes.modified = now;
            attributes.changed = now;
        }
    }

    private final Node root = new Node(Flags.S_IFDIR | 0755);

    private final boolean readOnly;

    MemoryTree() {
        this(false);
    }

    /** A read-only tree is made by {@link #prepare}. */
    MemoryTree(boolean readOnly) {
        this.readOnly = readOnly;
    }

    /** Makes a directory and those above it. */
    synchronized void prepare(String path) {
        Node node = root;
        for (String name : path.split("/")) {
            if (!name.isEmpty()) {
                Node child = node.children.get(name);
                if (child == null) {
                    child = new Node(Flags.S_IFDIR | 0755);
                    node.children.put(name, child);
                }
                node = child;
            }
        }
    }

    /** Some regular file of the tree, or null: it ends with the guest. */
    synchronized String anyFile() {
        return anyFile(root, "");
    }

    private static String anyFile(Node directory, String path) {
        for (Map.Entry<String, Node> child : directory.children.entrySet()) {
            String name = path + "/" + child.getKey();
            Node node = child.getValue();
            String found = node.children != null
                    ? anyFile(node, name)
                    : node.target == null && node.size > 0 ? name : null;
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    @Override
    boolean writable() {
        return !readOnly;
    }

    private Node find(String path) {
        Node node = root;
        if (!path.isEmpty()) {
            for (String name : path.split("/")) {
                node = node == null || node.children == null ? null : node.children.get(name);
            }
        }
        return node;
    }

    private Node existing(String path) throws Errno {
        Node node = find(path);
        if (node == null) {
            throw new Errno(Errno.ENOENT);
        }
        return node;
    }

    private Node parent(String path) throws Errno {
        int slash = path.lastIndexOf('/');
        Node node = existing(slash < 0 ? "" : path.substring(0, slash));
        if (node.children == null) {
            throw new Errno(Errno.ENOTDIR);
        }
        return node;
    }

    private static String name(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    private Node add(String path, int mode) throws Errno {
        Node parent = parent(path);
        if (path.isEmpty() || parent.children.containsKey(name(path))) {
            throw new Errno(Errno.EEXIST);
        }
        if (readOnly) {
            throw new Errno(Errno.EACCES);
        }
        Node node = new Node(mode);
        parent.children.put(name(path), node);
        parent.touch();
        return node;
    }

    @Override
    synchronized Attributes stat(String path) {
        Node node = find(path);
        return node == null ? null : copy(node);
    }

    private static Attributes copy(Node node) {
        Attributes a = Attributes.of(node.attributes.mode, node.attributes.inode);
        a.device = 1;
        a.links = node.attributes.links;
        a.size = node.target != null ? node.target.length() : node.size;
        a.accessed = node.attributes.accessed;
        a.modified = node.attributes.modified;
        a.changed = node.attributes.changed;
        return a;
    }

    @Override
    synchronized String readLink(String path) throws IOException {
        Node node = existing(path);
        if (node.target == null) {
            throw new Errno(Errno.EINVAL);
        }
        return node.target;
    }

    @Override
    synchronized OpenFile open(String path, int flags, int mode) throws IOException {
        Node node = find(path);
        if (node == null) {
            if ((flags & Flags.O_CREAT) == 0) {
                throw new Errno(Errno.ENOENT);
            }
            node = add(path, Flags.S_IFREG | mode & 07777);
        }
        Node found = node;
        if (node.children != null) {
            if (Flags.writes(flags) || (flags & Flags.O_CREAT) != 0) {
                throw new Errno(Errno.EISDIR);
            }
            return new OpenDirectory(flags, () -> copy(found), () -> list(path));
        }
        if ((flags & Flags.O_TRUNC) != 0) {
            node.bytes = new byte[0];
            node.size = 0;
            node.touch();
        }
        return new MemoryFile(flags, node);
    }

    @Override
    synchronized List<OpenDirectory.Entry> list(String path) throws IOException {
        List<OpenDirectory.Entry> entries = new ArrayList<>();
        Node node = existing(path);
        if (node.children == null) {
            throw new Errno(Errno.ENOTDIR);
        }
        node.children.forEach(
                (name, child) -> entries.add(new OpenDirectory.Entry(name, child.attributes)));
        return entries;
    }

    @Override
    synchronized void mkdir(String path, int mode) throws IOException {
        add(path, Flags.S_IFDIR | mode & 07777);
    }

    @Override
    synchronized void remove(String path, boolean directory) throws IOException {
        Node node = existing(path);
        boolean is = node.children != null;
        if (is != directory) {
            throw new Errno(is ? Errno.EISDIR : Errno.ENOTDIR);
        }
        if (is && !node.children.isEmpty()) {
            throw new Errno(Errno.ENOTEMPTY);
        }
        parent(path).children.remove(name(path));
        parent(path).touch();
        node.attributes.links--;
    }

    @Override
    synchronized void rename(String from, String to) throws IOException {
        Node node = existing(from);
        Node target = find(to);
        if (target == node) {
            return;
        }
        if (node.children != null && (to + "/").startsWith(from + "/")) {
            throw new Errno(Errno.EINVAL);
        }
        if (target != null && (target.children != null) != (node.children != null)) {
            throw new Errno(target.children != null ? Errno.EISDIR : Errno.ENOTDIR);
        }
        if (target != null && target.children != null && !target.children.isEmpty()) {
            throw new Errno(Errno.ENOTEMPTY);
        }
        Node into = parent(to);
        parent(from).children.remove(name(from));
        into.children.put(name(to), node);
    }

    @Override
    synchronized void symlink(String target, String path) throws IOException {
        add(path, Flags.S_IFLNK | 0777).target = target;
    }

    @Override
    synchronized void link(String from, String to) throws IOException {
        Node node = existing(from);
        if (node.children != null) {
            throw new Errno(Errno.EPERM);
        }
        if (find(to) != null) {
            throw new Errno(Errno.EEXIST);
        }
        parent(to).children.put(name(to), node);
        node.attributes.links++;
    }

    @Override
    synchronized void chmod(String path, int mode) throws IOException {
        Attributes attributes = existing(path).attributes;
        attributes.mode = attributes.mode & Flags.S_IFMT | mode & 07777;
    }

    @Override
    synchronized void setTimes(String path, long accessed, long modified) throws IOException {
        Attributes attributes = existing(path).attributes;
        attributes.accessed = accessed == Long.MIN_VALUE ? attributes.accessed : accessed;
        attributes.modified = modified == Long.MIN_VALUE ? attributes.modified : modified;
    }

    /** An open file of the tree. */
    private final class MemoryFile extends OpenFile {
        private final Node node;
        private long position;

        MemoryFile(int flags, Node node) {
            super(flags);
            this.node = node;
        }

        @Override
        int read(GuestThread t, byte[] to, int at, int length) {
            synchronized (MemoryTree.this) {
                int count = readAt(to, at, length, position);
                position += count;
                return count;
            }
        }

        @Override
        int write(GuestThread t, byte[] from, int at, int length) throws IOException {
            synchronized (MemoryTree.this) {
                if ((flags & Flags.O_APPEND) != 0) {
                    position = node.size;
                }
                int count = writeAt(from, at, length, position);
                position += count;
                return count;
            }
        }

        @Override
        int readAt(byte[] to, int at, int length, long from) {
            synchronized (MemoryTree.this) {
                int count = (int) Math.max(0, Math.min(length, node.size - from));
                if (count > 0) {
                    System.arraycopy(node.bytes, (int) from, to, at, count);
                }
                return count;
            }
        }

        @Override
        int writeAt(byte[] from, int at, int length, long to) throws IOException {
            synchronized (MemoryTree.this) {
                if (to + length > node.size) {
                    resize(to + length);
                }
                System.arraycopy(from, at, node.bytes, (int) to, length);
                node.touch();
                return length;
            }
        }

        private void resize(long size) throws Errno {
            if (size > Guest.MAX_MEMORY) {
                throw new Errno(Errno.EFBIG);
            }
            try {
                if (size > node.bytes.length) {
                    long room = Math.min(Guest.MAX_MEMORY, size + size / 2);
                    node.bytes = Arrays.copyOf(node.bytes, (int) room);
                } else if (size < node.size) {
                    Arrays.fill(node.bytes, (int) size, node.size, (byte) 0);
                }
                node.size = (int) size;
            } catch (OutOfMemoryError e) {
                throw new Errno(Errno.ENOSPC);
            }
        }

        @Override
        long seek(long offset, int whence) throws IOException {
            synchronized (MemoryTree.this) {
                long base = whence == 0 ? 0 : whence == 1 ? position : node.size;
                if (whence < 0 || whence > 2 || base + offset < 0) {
                    throw new Errno(Errno.EINVAL);
                }
                position = base + offset;
                return position;
            }
        }

        @Override
        void truncate(long size) throws IOException {
            synchronized (MemoryTree.this) {
                if (!Flags.writes(flags) || size < 0) {
                    throw new Errno(Errno.EINVAL);
                }
                resize(size);
                node.touch();
            }
        }

        @Override
        Attributes attributes() {
            synchronized (MemoryTree.this) {
                return copy(node);
            }
        }
    }
}
