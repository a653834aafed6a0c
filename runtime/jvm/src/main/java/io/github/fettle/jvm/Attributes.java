package io.github.fettle.jvm;

/** What {@code stat} tells about a file. Times are nanoseconds since 1970. */
final class Attributes {
    long device;
    long inode;
    int mode;
    int links = 1;
    int user = Identity.USER;
    int group = Identity.GROUP;
    int special;
    long size;
    long accessed;
    long modified;
    long changed;

    static Attributes of(int mode, long inode) {
        Attributes attributes = new Attributes();
        attributes.mode = mode;
        attributes.inode = inode;
        return attributes;
    }

    boolean isDirectory() {
        return (mode & Flags.S_IFMT) == Flags.S_IFDIR;
    }

    boolean isLink() {
        return (mode & Flags.S_IFMT) == Flags.S_IFLNK;
    }
}
