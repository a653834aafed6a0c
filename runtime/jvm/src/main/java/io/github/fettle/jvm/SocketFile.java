package io.github.fettle.jvm;

import java.io.IOException;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.SocketOption;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.channels.NetworkChannel;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/**
 * A socket.
 *
 * <p>Java has three classes where Linux has one, and asks for the class first: a stream socket
 * gets its channel when the guest connects or listens. Channels never block: a wait goes through a
 * selector for a moment at a time, so that signals get through.
 */
final class SocketFile extends OpenFile {
    private static final int SLICE_MS = 20;

    final int family;
    final boolean datagram;

    private SelectableChannel channel;
    private Selector selector;
    private SocketAddress bound;
    private boolean reuse;
    private boolean shutForReading;

    /** Timeouts of SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds, 0 for none. */
    long receiveTimeout;

    long sendTimeout;

    /** What the last connect ended with, for SO_ERROR. */
    int error;

    SocketFile(int flags, int family, boolean datagram) throws IOException {
        super(flags | Flags.O_RDWR);
        this.family = family;
        this.datagram = datagram;
        if (datagram) {
            use(DatagramChannel.open(protocol(family)));
        }
    }

    private SocketFile(int flags, int family, SocketChannel channel) throws IOException {
        super(flags | Flags.O_RDWR);
        this.family = family;
        this.datagram = false;
        use(channel);
    }

    private static ProtocolFamily protocol(int family) throws IOException {
        switch (family) {
            case SocketAddresses.INET:
                return StandardProtocolFamily.INET;
            case SocketAddresses.INET6:
                return StandardProtocolFamily.INET6;
            case SocketAddresses.UNIX:
                return Platform.unixFamily();
            default:
                throw new Errno(Errno.EAFNOSUPPORT);
        }
    }

    private void use(SelectableChannel channel) throws IOException {
        channel.configureBlocking(false);
        this.channel = channel;
    }

    /** Waits until an operation can go on; with O_NONBLOCK fails at once. */
    private void await(GuestThread t, int operation, long timeout, boolean now)
            throws IOException {
        if (nonBlocking() || now) {
            throw new Errno(Errno.EAGAIN);
        }
        long deadline = timeout == 0 ? Waits.FOREVER : TimeCalls.after(timeout);
        while (!selects(operation, SLICE_MS)) {
            t.guest.threads.checkEnd();
            if (t.guest.signals.deliverable(t)) {
                throw new Errno(Errno.RESTART);
            }
            if (deadline != Waits.FOREVER && System.nanoTime() >= deadline) {
                throw new Errno(Errno.EAGAIN);
            }
        }
    }

    /** Whether the channel is ready within some milliseconds, 0 to look only. */
    private boolean selects(int operation, long milliseconds) throws IOException {
        synchronized (this) {
            if (selector == null) {
                selector = Selector.open();
            }
        }
        synchronized (selector) {
            SelectionKey key = channel.keyFor(selector);
            if (key == null) {
                key = channel.register(selector, operation);
            } else {
                key.interestOps(operation);
            }
            selector.selectedKeys().clear();
            return (milliseconds == 0 ? selector.selectNow() : selector.select(milliseconds)) > 0;
        }
    }

    void bind(SocketAddress address) throws IOException {
        if (datagram) {
            ((DatagramChannel) channel).bind(address);
        } else if (bound != null) {
            throw new Errno(Errno.EINVAL);
        } else {
            ServerSocketChannel server = server();
            server.bind(address, 1);
            // Only whether the address is free, and which one 0 means; listen says how many.
            bound = server.getLocalAddress();
        }
    }

    private ServerSocketChannel server() throws IOException {
        if (channel == null) {
            ServerSocketChannel server = Platform.openServer(protocol(family));
            if (family != SocketAddresses.UNIX) {
                server.setOption(StandardSocketOptions.SO_REUSEADDR, reuse);
            }
            use(server);
        }
        if (!(channel instanceof ServerSocketChannel)) {
            throw new Errno(Errno.EINVAL);
        }
        return (ServerSocketChannel) channel;
    }

    void listen() throws IOException {
        if (datagram) {
            throw new Errno(Errno.EOPNOTSUPP);
        }
        if (bound == null) {
            bind(null);
        }
        server();
    }

    SocketFile accept(GuestThread t, int flags) throws IOException {
        if (bound == null || !(channel instanceof ServerSocketChannel)) {
            throw new Errno(Errno.EINVAL);
        }
        while (true) {
            SocketChannel peer = ((ServerSocketChannel) channel).accept();
            if (peer != null) {
                return new SocketFile(flags & Flags.O_NONBLOCK, family, peer);
            }
            await(t, SelectionKey.OP_ACCEPT, receiveTimeout, false);
        }
    }

    void connect(GuestThread t, SocketAddress address) throws IOException {
        if (datagram) {
            DatagramChannel datagrams = (DatagramChannel) channel;
            datagrams.disconnect();
            if (address != null) {
                datagrams.connect(address);
            }
            return;
        }
        SocketChannel stream = stream(address);
        if (stream.isConnected()) {
            throw new Errno(Errno.EISCONN);
        }
        try {
            if (stream.isConnectionPending() && nonBlocking()) {
                if (stream.finishConnect()) {
                    return;
                }
                throw new Errno(Errno.EALREADY);
            }
            if (stream.isConnectionPending() ? stream.finishConnect() : stream.connect(address)) {
                return;
            }
            if (nonBlocking()) {
                throw new Errno(Errno.EINPROGRESS);
            }
            while (!stream.finishConnect()) {
                await(t, SelectionKey.OP_CONNECT, sendTimeout, false);
            }
        } catch (IOException e) {
            if (!stream.isOpen()) {
                channel = null; // Java closes it on failure; the guest may try again
            }
            throw e;
        }
    }

    private SocketChannel stream(SocketAddress address) throws IOException {
        if (channel instanceof ServerSocketChannel) {
            // Bound before connecting: the address goes over to a channel that can connect.
            channel.close();
            channel = null;
            SocketChannel stream = Platform.openStream(protocol(family));
            if (family != SocketAddresses.UNIX) {
                stream.setOption(StandardSocketOptions.SO_REUSEADDR, true);
            }
            stream.bind(bound);
            use(stream);
        } else if (channel == null) {
            use(Platform.openStream(protocol(family)));
        }
        return (SocketChannel) channel;
    }

    private SocketChannel connected() throws IOException {
        if (!(channel instanceof SocketChannel)) {
            throw new Errno(Errno.ENOTCONN);
        }
        SocketChannel stream = (SocketChannel) channel;
        if (stream.isConnectionPending()) {
            stream.finishConnect();
        }
        if (!stream.isConnected()) {
            throw new Errno(Errno.ENOTCONN);
        }
        return stream;
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        return receive(t, to, at, length, false, null);
    }

    /** Reads; a datagram's sender goes to the first element of {@code from}. */
    int receive(
            GuestThread t, byte[] to, int at, int length, boolean now, SocketAddress[] from)
            throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(to, at, length);
        while (true) {
            if (datagram) {
                SocketAddress sender = ((DatagramChannel) channel).receive(buffer);
                if (sender != null) {
                    if (from != null) {
                        from[0] = sender;
                    }
                    return buffer.position() - at;
                }
            } else {
                SocketChannel stream = connected();
                int count = shutForReading ? -1 : stream.read(buffer);
                if (count != 0 || length == 0) {
                    return Math.max(0, count);
                }
            }
            await(t, SelectionKey.OP_READ, receiveTimeout, now);
        }
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        return send(t, from, at, length, false, null);
    }

    int send(
            GuestThread t, byte[] from, int at, int length, boolean now, SocketAddress to)
            throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(from, at, length);
        if (datagram) {
            DatagramChannel datagrams = (DatagramChannel) channel;
            if (to == null && !datagrams.isConnected()) {
                throw new Errno(Errno.EDESTADDRREQ);
            }
            return to != null ? datagrams.send(buffer, to) : datagrams.write(buffer);
        }
        if (!(channel instanceof SocketChannel)) {
            throw new Errno(Errno.EPIPE);
        }
        SocketChannel stream = connected();
        while (buffer.hasRemaining()) {
            if (stream.write(buffer) == 0) {
                boolean some = buffer.position() > at;
                if (some && (nonBlocking() || now)) {
                    break;
                }
                await(t, SelectionKey.OP_WRITE, sendTimeout, now);
            }
        }
        return buffer.position() - at;
    }

    void shutdown(int how) throws IOException {
        SocketChannel stream = connected();
        if (how != 1) {
            shutForReading = true;
            stream.shutdownInput();
        }
        if (how != 0) {
            stream.shutdownOutput();
        }
    }

    SocketAddress local() throws IOException {
        return channel == null ? null : ((NetworkChannel) channel).getLocalAddress();
    }

    SocketAddress remote() throws IOException {
        SocketAddress address = datagram
                ? ((DatagramChannel) channel).getRemoteAddress()
                : connected().getRemoteAddress();
        if (address == null) {
            throw new Errno(Errno.ENOTCONN);
        }
        return address;
    }

    void setReuse(boolean on) throws IOException {
        reuse = on;
        if (datagram) {
            ((NetworkChannel) channel).setOption(StandardSocketOptions.SO_REUSEADDR, on);
        }
    }

    /** Sets an option where the channel has it; the guest can't tell otherwise. */
    <T> void setOption(SocketOption<T> option, T value) throws IOException {
        NetworkChannel network = (NetworkChannel) channel;
        if (network != null && network.supportedOptions().contains(option)) {
            network.setOption(option, value);
        }
    }

    boolean listening() {
        return channel instanceof ServerSocketChannel;
    }

    /** Bytes that could be read are not known before they are: 1 says that there are some. */
    int available() throws IOException {
        return (ready() & Flags.POLLIN) != 0 ? 1 : 0;
    }

    /** SO_ERROR: also finishes a connect that went on in the background. */
    int takeError() {
        try {
            if (channel instanceof SocketChannel
                    && ((SocketChannel) channel).isConnectionPending()) {
                ((SocketChannel) channel).finishConnect();
            }
        } catch (IOException e) {
            error = Errno.of(e);
        }
        int taken = error;
        error = 0;
        return taken;
    }

    @Override
    int ready() throws IOException {
        if (channel == null) {
            return Flags.POLLOUT | Flags.POLLHUP;
        }
        if (channel instanceof ServerSocketChannel) {
            return bound != null && selects(SelectionKey.OP_ACCEPT, 0) ? Flags.POLLIN : 0;
        }
        if (channel instanceof SocketChannel && !((SocketChannel) channel).isConnected()) {
            return connecting((SocketChannel) channel);
        }
        int bits = selects(SelectionKey.OP_READ, 0) || shutForReading ? Flags.POLLIN : 0;
        return selects(SelectionKey.OP_WRITE, 0) ? bits | Flags.POLLOUT : bits;
    }

    private int connecting(SocketChannel stream) {
        try {
            return stream.isConnectionPending() && !stream.finishConnect() ? 0 : Flags.POLLOUT;
        } catch (IOException e) {
            error = Errno.of(e);
            return Flags.POLLIN | Flags.POLLOUT | Flags.POLLERR | Flags.POLLHUP;
        }
    }

    @Override
    Attributes attributes() {
        return Attributes.of(Flags.S_IFSOCK | 0777, 5);
    }

    @Override
    void close() throws IOException {
        if (channel != null) {
            channel.close();
        }
        if (selector != null) {
            selector.close();
        }
    }
}
