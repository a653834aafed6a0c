package io.github.fettle.jvm;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;

/** An {@code epoll} instance: what to look at, and what was reported last. */
final class Epoll extends OpenFile {
    private static final int EPOLLET = 0x8000_0000;
    private static final int EPOLLONESHOT = 0x4000_0000;

    private static final class Interest {
        final OpenFile file;
        int events;
        long data;

        /** What an edge is against. */
        int reported;

        Interest(OpenFile file, int events, long data) {
            this.file = file;
            this.events = events;
            this.data = data;
        }
    }

    private final Map<Integer, Interest> interests = new LinkedHashMap<>();

    Epoll() {
        super(Flags.O_RDWR);
    }

    synchronized void add(int descriptor, OpenFile file, int events, long data) throws Errno {
        Interest before = interests.get(descriptor);
        if (before != null && before.file == file) {
            throw new Errno(Errno.EEXIST);
        }
        interests.put(descriptor, new Interest(file, events, data));
    }

    synchronized void modify(int descriptor, int events, long data) throws Errno {
        Interest interest = interests.get(descriptor);
        if (interest == null) {
            throw new Errno(Errno.ENOENT);
        }
        interest.events = events;
        interest.data = data;
        interest.reported = 0;
    }

    synchronized void delete(int descriptor) throws Errno {
        if (interests.remove(descriptor) == null) {
            throw new Errno(Errno.ENOENT);
        }
    }

    /** Writes what is ready; forgets what was closed. */
    synchronized int collect(GuestThread t, int to, int most) throws IOException {
        int count = 0;
        interests.entrySet().removeIf(entry -> closed(t, entry.getKey(), entry.getValue()));
        for (Interest interest : interests.values()) {
            if (count == most) {
                break;
            }
            int wanted = interest.events & 0xffff | Flags.POLLERR | Flags.POLLHUP;
            int bits = interest.events == 0 ? 0 : interest.file.ready() & wanted;
            boolean edge = (interest.events & EPOLLET) != 0;
            boolean report = edge ? (bits & ~interest.reported) != 0 : bits != 0;
            interest.reported = bits;
            if (report) {
                t.store(to + count * 16, bits);
                t.storeLong(to + count * 16 + 8, interest.data);
                count++;
                if ((interest.events & EPOLLONESHOT) != 0) {
                    interest.events = 0;
                }
            }
        }
        return count;
    }

    private static boolean closed(GuestThread t, int descriptor, Interest interest) {
        try {
            return t.guest.files.get(descriptor) != interest.file;
        } catch (Errno e) {
            return true;
        }
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        throw new Errno(Errno.EINVAL);
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        throw new Errno(Errno.EINVAL);
    }

    @Override
    synchronized int ready() throws IOException {
        for (Interest interest : interests.values()) {
            if ((interest.file.ready() & interest.events) != 0) {
                return Flags.POLLIN;
            }
        }
        return 0;
    }

    @Override
    Attributes attributes() {
        return Attributes.of(0600, 4);
    }
}
