package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;

/**
 * The guest's name space: trees mounted over one another, and its working directory.
 *
 * <p>Every name is walked here, one component at a time, and symbolic links are followed here, as
 * guest paths: ".." above the root is the root, and a link to "/etc" means the guest's own. So no
 * host path that leaves a granted directory can come about. The walk and the use of its result
 * happen under one lock for the whole JVM, so that guests can't swap a directory for a link in
 * between.
 */
final class Vfs {
    private static final int MOST_LINKS = 40;
    private static final int LONGEST = 4096;

    /** Where a name led. */
    static final class Place {
        /** Absolute, without links, "." and "..". */
        final String path;

        final FileTree tree;

        /** The name within the tree. */
        final String inTree;

        /** What is there, or null. */
        final Attributes attributes;

        Place(String path, FileTree tree, String inTree, Attributes attributes) {
            this.path = path;
            this.tree = tree;
            this.inTree = inTree;
            this.attributes = attributes;
        }

        Place existing() throws Errno {
            if (attributes == null) {
                throw new Errno(Errno.ENOENT);
            }
            return this;
        }

        Place absent() throws Errno {
            if (attributes != null) {
                throw new Errno(Errno.EEXIST);
            }
            return this;
        }
    }

    /** Something to do with a place while no thread can change what the name means. */
    interface Use<T> {
        T of(Place place) throws IOException;
    }

    private static final class Mount {
        final String at;
        final FileTree tree;

        Mount(String at, FileTree tree) {
            this.at = at;
            this.tree = tree;
        }
    }

    private static final Object LOCK = new Object();

    /** The most specific first. */
    private final List<Mount> mounts = new ArrayList<>();

    private final MemoryTree temporary;
    private final String executable;
    private FileTable files;
    String workingDirectory;
    int umask = 022;

    Vfs(Options options) {
        Grant grant = options.grant;
        workingDirectory = grant.workingDirectory;
        executable = options.name.startsWith("/")
                ? options.name
                : (workingDirectory.equals("/") ? "/" : workingDirectory + "/") + options.name;
        mount("/dev/shm", new MemoryTree());
        mount("/dev", new DeviceTree(this));
        boolean whole = grant.directory != null && grant.mount.equals("/");
        if (grant.directory != null) {
            mount(grant.mount, new HostTree(grant.directory, grant.writable));
        }
        boolean hasOwn = whole && Files.isDirectory(grant.directory.resolve("tmp"));
        temporary = hasOwn ? null : new MemoryTree();
        if (!hasOwn) {
            temporary.prepare(grant.mount == null ? "" : below("/tmp", grant.mount));
            mount("/tmp", temporary);
        }
        if (!whole) {
            MemoryTree rest = new MemoryTree(true);
            rest.prepare("/tmp");
            rest.prepare("/dev");
            rest.prepare(grant.mount == null ? "" : grant.mount);
            mount("/", rest);
        }
    }

    FileTable files() {
        return files;
    }

    void setFiles(FileTable files) {
        this.files = files;
    }

    /** The part of a path below a directory, or "". */
    private static String below(String directory, String path) {
        return path.startsWith(directory + "/") ? path.substring(directory.length()) : "";
    }

    private void mount(String at, FileTree tree) {
        int longer = 0;
        while (longer < mounts.size() && mounts.get(longer).at.length() >= at.length()) {
            longer++;
        }
        mounts.add(longer, new Mount(at, tree));
    }

    /** A file that ends with the guest although its name looks like one of the host's, or null. */
    String leftInMemory() {
        String name = temporary == null ? null : temporary.anyFile();
        return name == null ? null : "/tmp" + name;
    }

    /** Follows a name and does something with where it led. */
    <T> T at(String base, String name, boolean follow, Use<T> use) throws IOException {
        synchronized (LOCK) {
            return use.of(walk(base, name, follow));
        }
    }

    <T> T atBoth(
            String baseA, String a, boolean followA, String baseB, String b, TwoUse<T> use)
            throws IOException {
        synchronized (LOCK) {
            return use.of(walk(baseA, a, followA), walk(baseB, b, false));
        }
    }

    /** The same with two names. */
    interface TwoUse<T> {
        T of(Place from, Place to) throws IOException;
    }

    private Place walk(String base, String name, boolean follow) throws IOException {
        if (name.isEmpty()) {
            throw new Errno(Errno.ENOENT);
        }
        if (name.length() >= LONGEST) {
            throw new Errno(Errno.ENAMETOOLONG);
        }
        Deque<String> todo = new ArrayDeque<>(Arrays.asList(name.split("/")));
        boolean directory = name.endsWith("/");
        Place here = locate(name.startsWith("/") ? "/" : base);
        int links = 0;
        while (!todo.isEmpty()) {
            String component = todo.pop();
            if (component.isEmpty() || component.equals(".")) {
                continue;
            }
            if (here.attributes == null) {
                throw new Errno(Errno.ENOENT);
            }
            if (!here.attributes.isDirectory()) {
                throw new Errno(Errno.ENOTDIR);
            }
            if (component.equals("..")) {
                here = locate(here.path.substring(0, Math.max(1, here.path.lastIndexOf('/'))));
                continue;
            }
            Place next = locate((here.path.equals("/") ? "" : here.path) + "/" + component);
            boolean last = todo.isEmpty();
            boolean link = next.attributes != null && next.attributes.isLink();
            if (link && (!last || follow || directory)) {
                if (++links > MOST_LINKS) {
                    throw new Errno(Errno.ELOOP);
                }
                String target = readLink(next);
                if (target.startsWith("/")) {
                    here = locate("/");
                }
                String[] parts = target.split("/");
                for (int i = parts.length - 1; i >= 0; i--) {
                    todo.push(parts[i]);
                }
                continue;
            }
            here = next;
        }
        if (directory && here.attributes != null && !here.attributes.isDirectory()) {
            throw new Errno(Errno.ENOTDIR);
        }
        return here;
    }

    String readLink(Place place) throws IOException {
        if (place.path.equals("/proc/self/exe")) {
            return executable;
        }
        if (place.attributes == null) {
            throw new Errno(Errno.ENOENT);
        }
        if (!place.attributes.isLink()) {
            throw new Errno(Errno.EINVAL);
        }
        return place.tree.readLink(place.inTree);
    }

    String executable() {
        return executable;
    }

    private Place locate(String path) throws IOException {
        for (Mount mount : mounts) {
            if (mount.at.equals("/")) {
                String inTree = path.substring(1);
                return new Place(path, mount.tree, inTree, mount.tree.stat(inTree));
            }
            if (path.equals(mount.at)) {
                return new Place(path, mount.tree, "", mount.tree.stat(""));
            }
            if (path.startsWith(mount.at + "/")) {
                String inTree = path.substring(mount.at.length() + 1);
                return new Place(path, mount.tree, inTree, mount.tree.stat(inTree));
            }
        }
        throw new Errno(Errno.ENOENT);
    }

    OpenFile open(String base, String name, int flags, int mode) throws IOException {
        boolean exclusive = (flags & Flags.O_CREAT) != 0 && (flags & Flags.O_EXCL) != 0;
        boolean follow = (flags & Flags.O_NOFOLLOW) == 0 && !exclusive;
        return at(base, name, follow, place -> {
            if (exclusive && (flags & Flags.O_TMPFILE) == 0) {
                place.absent();
            }
            if (place.attributes != null && place.attributes.isLink()) {
                throw new Errno(Errno.ELOOP);
            }
            boolean directory = place.attributes != null && place.attributes.isDirectory();
            if ((flags & Flags.O_DIRECTORY) != 0 && place.attributes != null && !directory) {
                throw new Errno(Errno.ENOTDIR);
            }
            if ((flags & Flags.O_TMPFILE) != 0) {
                throw new Errno(Errno.EOPNOTSUPP); // glibc then makes a named one and removes it
            }
            if (place.attributes == null && name.endsWith("/") && exclusiveOrCreates(flags)) {
                throw new Errno(Errno.EISDIR);
            }
            boolean readOnly = !place.tree.writable() && !(place.tree instanceof DeviceTree);
            if (place.attributes != null && !directory && readOnly && Flags.writes(flags)) {
                throw new Errno(Errno.EROFS);
            }
            OpenFile file = place.tree.open(place.inTree, flags, mode & ~umask);
            if (file.path == null) {
                file.path = place.path;
            }
            return file;
        });
    }

    private static boolean exclusiveOrCreates(int flags) {
        return (flags & Flags.O_CREAT) != 0;
    }
}
