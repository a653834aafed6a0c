package io.github.fettle.jvm;

import java.time.Instant;

/** The guest's clocks. */
final class Clock {
    static final int TICKS_PER_SECOND = 100;
    static final long SECOND = 1_000_000_000L;

    private static final int REALTIME = 0;
    private static final int MONOTONIC = 1;
    private static final int PROCESS_CPU = 2;
    private static final int THREAD_CPU = 3;
    private static final int MONOTONIC_RAW = 4;
    private static final int REALTIME_COARSE = 5;
    private static final int MONOTONIC_COARSE = 6;
    private static final int BOOT = 7;

    /** Java's nanoTime may start anywhere; the guest's must not be negative. */
    private final long origin = System.nanoTime() - 1000 * SECOND;

    long read(int clock) throws Errno {
        switch (clock) {
            case REALTIME:
            case REALTIME_COARSE:
                return realtime();
            case MONOTONIC:
            case MONOTONIC_RAW:
            case MONOTONIC_COARSE:
            case BOOT:
                return monotonic();
            case PROCESS_CPU:
                return processCpu();
            case THREAD_CPU:
                return threadCpu();
            default:
                throw new Errno(Errno.EINVAL);
        }
    }

    long realtime() {
        Instant now = Instant.now();
        return now.getEpochSecond() * SECOND + now.getNano();
    }

    long monotonic() {
        return System.nanoTime() - origin;
    }

    /** The monotonic clock's value as a deadline for Java's waits. */
    long deadline(int clock, long time) throws Errno {
        if (clock == REALTIME || clock == REALTIME_COARSE) {
            return System.nanoTime() + (time - realtime());
        }
        return origin + time;
    }

    /** CPU time of the whole JVM, its compiler included: the guest has no other. */
    long processCpu() {
        long time = Platform.processCpu();
        return time < 0 ? monotonic() : time;
    }

    private static long threadCpu() {
        return Platform.threadCpu();
    }
}
