package io.github.fettle.jvm;

import java.io.IOException;
import java.net.SocketAddress;
import java.net.StandardSocketOptions;

/** System calls on sockets. */
final class SocketCalls {
    private static final int SOCK_DGRAM = 1;
    private static final int SOCK_STREAM = 2;
    private static final int MSG_PEEK = 2;
    private static final int MSG_DONTWAIT = 0x40;
    private static final int MSG_WAITALL = 0x100;
    private static final int MSG_NOSIGNAL = 0x4000;

    private static final int SOL_SOCKET = 0xffff;
    private static final int SO_REUSEADDR = 4;
    private static final int SO_KEEPALIVE = 8;
    private static final int SO_BROADCAST = 0x20;
    private static final int SO_SNDBUF = 0x1001;
    private static final int SO_RCVBUF = 0x1002;
    private static final int SO_SNDTIMEO = 0x1005;
    private static final int SO_RCVTIMEO = 0x1006;
    private static final int SO_ERROR = 0x1007;
    private static final int SO_TYPE = 0x1008;
    private static final int SO_ACCEPTCONN = 0x1009;
    private static final int SO_PROTOCOL = 0x1028;
    private static final int SO_DOMAIN = 0x1029;
    private static final int IPPROTO_TCP = 6;
    private static final int TCP_NODELAY = 1;

    private SocketCalls() {}

    private static void requireNetwork(GuestThread t) throws Errno {
        if (!t.guest.options.network) {
            throw new Errno(Errno.EACCES);
        }
    }

    private static SocketFile socket(GuestThread t, int descriptor) throws Errno {
        OpenFile file = t.guest.files.get(descriptor);
        if (!(file instanceof SocketFile)) {
            boolean pair = file instanceof PipeEnd && ((PipeEnd) file).isSocket();
            throw new Errno(pair ? Errno.EOPNOTSUPP : Errno.ENOTSOCK);
        }
        return (SocketFile) file;
    }

    static int open(GuestThread t, int family, int type, int protocol) throws IOException {
        requireNetwork(t);
        int kind = type & 15;
        boolean datagram = kind == SOCK_DGRAM;
        if (kind != SOCK_STREAM && !datagram) {
            throw new Errno(Errno.EPROTONOSUPPORT);
        }
        if (datagram && family == SocketAddresses.UNIX) {
            throw new Errno(Errno.EPROTONOSUPPORT);
        }
        SocketFile socket = new SocketFile(type & Flags.O_NONBLOCK, family, datagram);
        return t.guest.files.add(socket, (type & Flags.O_CLOEXEC) != 0);
    }

    /** Two pipes, one for each direction: this needs no network. */
    static int pair(GuestThread t, int family, int type, int result) throws IOException {
        if (family != SocketAddresses.UNIX) {
            throw new Errno(Errno.EOPNOTSUPP);
        }
        if ((type & 15) != SOCK_STREAM) {
            throw new Errno(Errno.EPROTONOSUPPORT);
        }
        Pipe there = new Pipe(t.guest.waits);
        Pipe back = new Pipe(t.guest.waits);
        int flags = type & Flags.O_NONBLOCK | Flags.O_RDWR;
        boolean closes = (type & Flags.O_CLOEXEC) != 0;
        FileTable files = t.guest.files;
        t.store(result, files.add(new PipeEnd(flags, back, there, Flags.S_IFSOCK), closes));
        t.store(result + 4, files.add(new PipeEnd(flags, there, back, Flags.S_IFSOCK), closes));
        return 0;
    }

    static int bind(GuestThread t, int descriptor, int address, int length) throws IOException {
        socket(t, descriptor).bind(SocketAddresses.load(t, address, length));
        return 0;
    }

    static int connect(GuestThread t, int descriptor, int address, int length)
            throws IOException {
        socket(t, descriptor).connect(t, SocketAddresses.load(t, address, length));
        return 0;
    }

    static int listen(GuestThread t, int descriptor) throws IOException {
        socket(t, descriptor).listen();
        return 0;
    }

    static int accept(GuestThread t, int descriptor, int address, int length, int flags)
            throws IOException {
        SocketFile peer = socket(t, descriptor).accept(t, flags);
        int number = t.guest.files.add(peer, (flags & Flags.O_CLOEXEC) != 0);
        SocketAddresses.store(t, peer.remote(), peer.family, address, length);
        return number;
    }

    static int name(GuestThread t, int descriptor, int address, int length, boolean peer)
            throws IOException {
        SocketFile socket = socket(t, descriptor);
        SocketAddress name = peer ? socket.remote() : socket.local();
        SocketAddresses.store(t, name, socket.family, address, length);
        return 0;
    }

    static int shutdown(GuestThread t, int descriptor, int how) throws IOException {
        OpenFile file = t.guest.files.get(descriptor);
        if (file instanceof PipeEnd && ((PipeEnd) file).isSocket()) {
            ((PipeEnd) file).shutdown(how);
            return 0;
        }
        socket(t, descriptor).shutdown(how);
        return 0;
    }

    static int send(
            GuestThread t, int descriptor, int from, int length, int flags, int address, int size)
            throws IOException {
        if (length < 0 || from < 0 || from > t.memory.length - length) {
            throw new Errno(Errno.EFAULT);
        }
        OpenFile file = t.guest.files.get(descriptor);
        try {
            if (file instanceof PipeEnd && ((PipeEnd) file).isSocket()) {
                return file.write(t, t.memory, from, length);
            }
            SocketFile socket = socket(t, descriptor);
            SocketAddress to = address == 0 ? null : SocketAddresses.load(t, address, size);
            boolean now = (flags & MSG_DONTWAIT) != 0;
            return socket.send(t, t.memory, from, length, now, socket.datagram ? to : null);
        } catch (IOException e) {
            if (Errno.of(e) == Errno.EPIPE && (flags & MSG_NOSIGNAL) == 0) {
                t.guest.signals.raise(Signals.PIPE, t, Signals.SI_USER, 0);
            }
            throw e;
        }
    }

    static int receive(
            GuestThread t, int descriptor, int to, int length, int flags, int address, int size)
            throws IOException {
        if (length < 0 || to < 0 || to > t.memory.length - length) {
            throw new Errno(Errno.EFAULT);
        }
        if ((flags & MSG_PEEK) != 0) {
            throw new Errno(Errno.EOPNOTSUPP);
        }
        OpenFile file = t.guest.files.get(descriptor);
        boolean pair = file instanceof PipeEnd && ((PipeEnd) file).isSocket();
        SocketFile socket = pair ? null : socket(t, descriptor);
        SocketAddress[] sender = {null};
        int done = 0;
        boolean all = (flags & MSG_WAITALL) != 0;
        do {
            int count = pair
                    ? file.read(t, t.memory, to + done, length - done)
                    : socket.receive(
                            t, t.memory, to + done, length - done,
                            (flags & MSG_DONTWAIT) != 0, sender);
            done += count;
            all &= count > 0;
        } while (all && done < length);
        if (address != 0 && sender[0] != null) {
            SocketAddresses.store(t, sender[0], socket.family, address, size);
        }
        return done;
    }

    /** {@code sendmsg} and {@code recvmsg} without ancillary data: the vectors one by one. */
    static int message(GuestThread t, int descriptor, int message, int flags, boolean sends)
            throws IOException {
        int address = t.load(message);
        int vector = t.load(message + 8);
        int count = t.load(message + 12);
        int done = 0;
        for (int i = 0; i < count; i++) {
            int at = t.load(vector + i * 8);
            int length = t.load(vector + i * 8 + 4);
            if (length == 0) {
                continue;
            }
            int moved = sends
                    ? send(t, descriptor, at, length, flags, address, t.load(message + 4))
                    : receive(t, descriptor, at, length, flags, address, message + 4);
            done += moved;
            if (moved < length || !sends && t.guest.files.get(descriptor).ready() == 0) {
                break;
            }
        }
        if (!sends) {
            t.store(message + 20, 0);
            t.store(message + 24, 0);
        }
        return done;
    }

    static int setOption(
            GuestThread t, int descriptor, int level, int option, int value, int length)
            throws IOException {
        OpenFile file = t.guest.files.get(descriptor);
        if (file instanceof PipeEnd && ((PipeEnd) file).isSocket()) {
            return 0;
        }
        SocketFile socket = socket(t, descriptor);
        if (length < 4) {
            throw new Errno(Errno.EINVAL);
        }
        int number = t.load(value);
        if (level == IPPROTO_TCP && option == TCP_NODELAY) {
            socket.setOption(StandardSocketOptions.TCP_NODELAY, number != 0);
            return 0;
        }
        if (level != SOL_SOCKET) {
            throw new Errno(Errno.ENOPROTOOPT);
        }
        switch (option) {
            case SO_REUSEADDR:
                socket.setReuse(number != 0);
                return 0;
            case SO_KEEPALIVE:
                socket.setOption(StandardSocketOptions.SO_KEEPALIVE, number != 0);
                return 0;
            case SO_BROADCAST:
                socket.setOption(StandardSocketOptions.SO_BROADCAST, number != 0);
                return 0;
            case SO_SNDBUF:
                socket.setOption(StandardSocketOptions.SO_SNDBUF, Math.max(1, number));
                return 0;
            case SO_RCVBUF:
                socket.setOption(StandardSocketOptions.SO_RCVBUF, Math.max(1, number));
                return 0;
            case SO_RCVTIMEO:
                socket.receiveTimeout = number * Clock.SECOND + t.load(value + 4) * 1000L;
                return 0;
            case SO_SNDTIMEO:
                socket.sendTimeout = number * Clock.SECOND + t.load(value + 4) * 1000L;
                return 0;
            default:
                throw new Errno(Errno.ENOPROTOOPT);
        }
    }

    static int option(GuestThread t, int descriptor, int level, int option, int value, int length)
            throws IOException {
        OpenFile file = t.guest.files.get(descriptor);
        boolean pair = file instanceof PipeEnd && ((PipeEnd) file).isSocket();
        SocketFile socket = pair ? null : socket(t, descriptor);
        if (level != SOL_SOCKET) {
            throw new Errno(Errno.ENOPROTOOPT);
        }
        int result;
        switch (option) {
            case SO_ERROR:
                result = pair ? 0 : socket.takeError();
                break;
            case SO_TYPE:
                result = !pair && socket.datagram ? SOCK_DGRAM : SOCK_STREAM;
                break;
            case SO_DOMAIN:
                result = pair ? SocketAddresses.UNIX : socket.family;
                break;
            case SO_ACCEPTCONN:
                result = !pair && socket.listening() ? 1 : 0;
                break;
            case SO_PROTOCOL:
                result = 0;
                break;
            case SO_SNDBUF:
            case SO_RCVBUF:
                result = 65536;
                break;
            default:
                throw new Errno(Errno.ENOPROTOOPT);
        }
        t.store(value, result);
        t.store(length, 4);
        return 0;
    }
}
