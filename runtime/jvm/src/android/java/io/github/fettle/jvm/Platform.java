package io.github.fettle.jvm;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

/** What the runtime asks of Java, by what Android 8.0 has. */
final class Platform {
    /** The kernel's unit of CPU time in /proc. */
    private static final long TICK = Clock.SECOND / Clock.TICKS_PER_SECOND;

    private static final int USER_TIME = 11;
    private static final int SYSTEM_TIME = 12;

    private Platform() {}

    static int processId() {
        try {
            return Integer.parseInt(new File("/proc/self").getCanonicalFile().getName());
        } catch (IOException | NumberFormatException e) {
            return 1;
        }
    }

    static long processCpu() {
        return cpu("/proc/self/stat");
    }

    static long threadCpu() {
        return cpu("/proc/thread-self/stat");
    }

    private static long cpu(String file) {
        try {
            byte[] bytes = Files.readAllBytes(Paths.get(file));
            String text = new String(bytes, StandardCharsets.ISO_8859_1);
            // The name before it may have blanks.
            String[] fields = text.substring(text.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[USER_TIME]) + Long.parseLong(fields[SYSTEM_TIME])) * TICK;
        } catch (IOException | RuntimeException e) {
            return -1;
        }
    }

    static SocketChannel openStream(ProtocolFamily family) throws IOException {
        return SocketChannel.open();
    }

    static ServerSocketChannel openServer(ProtocolFamily family) throws IOException {
        return ServerSocketChannel.open();
    }

    static SocketAddress unixAddress(String path) throws IOException {
        throw new Errno(Errno.EAFNOSUPPORT);
    }

    static ProtocolFamily unixFamily() throws IOException {
        throw new Errno(Errno.EAFNOSUPPORT);
    }

    static Object invokeDefault(Object proxy, Method method, Object[] arguments) throws Throwable {
        throw new UnsupportedOperationException("a default method: " + method.getName());
    }

    static boolean isRecord(Class<?> type) {
        return false;
    }
}
