package io.github.fettle.jvm;

import java.io.IOException;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;

/** Socket addresses as the guest has them in memory. */
final class SocketAddresses {
    static final int UNIX = 1;
    static final int INET = 2;
    static final int INET6 = 10;

    private SocketAddresses() {}

    static SocketAddress load(GuestThread t, int at, int length) throws IOException {
        if (length < 2) {
            throw new Errno(Errno.EINVAL);
        }
        switch (t.loadShort(at)) {
            case INET:
                require(length, 16);
                return new InetSocketAddress(InetAddress.getByAddress(bytes(t, at + 4, 4)), port(t, at));
            case INET6:
                require(length, 28);
                return new InetSocketAddress(InetAddress.getByAddress(bytes(t, at + 8, 16)), port(t, at));
            case UNIX:
                return Platform.unixAddress(unixName(t, at + 2, length - 2));
            default:
                throw new Errno(Errno.EAFNOSUPPORT);
        }
    }

    private static void require(int length, int least) throws Errno {
        if (length < least) {
            throw new Errno(Errno.EINVAL);
        }
    }

    private static int port(GuestThread t, int at) {
        return (t.memory[at + 2] & 255) << 8 | t.memory[at + 3] & 255;
    }

    private static byte[] bytes(GuestThread t, int at, int length) {
        return java.util.Arrays.copyOfRange(t.memory, at, at + length);
    }

    /** The guest's name, as the host has it; only names in a granted host directory exist there. */
    private static String unixName(GuestThread t, int at, int length) throws IOException {
        int end = 0;
        while (end < length && t.memory[at + end] != 0) {
            end++;
        }
        String name = new String(t.memory, at, end, StandardCharsets.UTF_8);
        if (name.isEmpty()) {
            throw new Errno(Errno.EAFNOSUPPORT); // the abstract name space, which Java lacks
        }
        String host = t.guest.vfs.at(
                t.guest.vfs.workingDirectory, name, true,
                place -> place.tree instanceof HostTree
                        ? ((HostTree) place.tree).hostPath(place.inTree)
                        : null);
        if (host == null) {
            throw new Errno(Errno.EACCES);
        }
        return host;
    }

    /** Writes an address and its length as {@code accept} and the like do; both may be 0. */
    static void store(GuestThread t, SocketAddress address, int family, int to, int lengthAt) {
        if (to == 0 || lengthAt == 0) {
            return;
        }
        byte[] bytes = encode(t, address, family);
        int room = t.load(lengthAt);
        System.arraycopy(bytes, 0, t.memory, to, Math.min(room, bytes.length));
        t.store(lengthAt, bytes.length);
    }

    private static byte[] encode(GuestThread t, SocketAddress address, int family) {
        if (address instanceof InetSocketAddress) {
            InetSocketAddress inet = (InetSocketAddress) address;
            byte[] host = inet.getAddress().getAddress();
            if (family == INET6) {
                byte[] bytes = new byte[28];
                header(t, bytes, INET6, inet.getPort());
                if (host.length == 4) {
                    bytes[18] = -1;
                    bytes[19] = -1;
                    System.arraycopy(host, 0, bytes, 20, 4);
                } else {
                    System.arraycopy(host, 0, bytes, 8, 16);
                }
                return bytes;
            }
            byte[] bytes = new byte[16];
            header(t, bytes, INET, inet.getPort());
            byte[] four = inet.getAddress() instanceof Inet6Address ? new byte[4] : host;
            System.arraycopy(four, 0, bytes, 4, 4);
            return bytes;
        }
        byte[] name = address == null
                ? new byte[0]
                : address.toString().getBytes(StandardCharsets.UTF_8);
        byte[] bytes = new byte[name.length == 0 ? 2 : name.length + 3];
        header(t, bytes, family, 0);
        System.arraycopy(name, 0, bytes, 2, name.length);
        return bytes;
    }

    private static void header(GuestThread t, byte[] bytes, int family, int port) {
        bytes[t.guest.bigEndian ? 1 : 0] = (byte) family;
        if (family != UNIX) {
            bytes[2] = (byte) (port >> 8);
            bytes[3] = (byte) port;
        }
    }
}
