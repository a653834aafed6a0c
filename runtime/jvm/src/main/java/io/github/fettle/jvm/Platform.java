package io.github.fettle.jvm;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Paths;

/** What the runtime asks of Java that not every Java has: Android has a class of its own for it. */
final class Platform {
    private Platform() {}

    static int processId() {
        try {
            // Java's own way starts threads, which takes longer than a short program.
            return Integer.parseInt(Files.readSymbolicLink(Paths.get("/proc/self")).toString());
        } catch (IOException | RuntimeException e) {
            return (int) ProcessHandle.current().pid();
        }
    }

    /** CPU time of the whole JVM in nanoseconds, its compiler included; negative if unknown. */
    static long processCpu() {
        Object bean = ManagementFactory.getOperatingSystemMXBean();
        if (bean instanceof com.sun.management.OperatingSystemMXBean) {
            return ((com.sun.management.OperatingSystemMXBean) bean).getProcessCpuTime();
        }
        return -1;
    }

    static long threadCpu() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    static SocketChannel openStream(ProtocolFamily family) throws IOException {
        return SocketChannel.open(family);
    }

    static ServerSocketChannel openServer(ProtocolFamily family) throws IOException {
        return ServerSocketChannel.open(family);
    }

    static SocketAddress unixAddress(String path) throws IOException {
        return UnixDomainSocketAddress.of(path);
    }

    /** What Java calls sockets of the file system. */
    static ProtocolFamily unixFamily() throws IOException {
        return java.net.StandardProtocolFamily.UNIX;
    }

    static Object invokeDefault(Object proxy, Method method, Object[] arguments) throws Throwable {
        return InvocationHandler.invokeDefault(proxy, method, arguments);
    }

    static boolean isRecord(Class<?> type) {
        return type.isRecord();
    }
}
