package dev.fettle.sensor;

/** How often each magnitude occurred. */
public final class Histogram extends Sensor {
    private static final int BUCKETS_AT = 64;
    private static final int SUB_BITS = 3;

    /** A histogram. */
    public Histogram(String name, int major, int minor, int instance) {
        super(name, major, minor, instance, HISTOGRAM, Policy.DROP, 65, 0, 0);
    }

    /** Counts a value, which has no sign. */
    public void record(long value) {
        if (!isEnabled()) {
            return;
        }
        int at = writer().at;
        LONG.getAndAdd(memory, at + BUCKETS_AT + 8 * bucket(value), 1L);
        LONG.getAndAdd(memory, at, value);
    }

    private static int bucket(long value) {
        if (value >= 0 && value < 1 << SUB_BITS) {
            return (int) value;
        }
        int exponent = 63 - Long.numberOfLeadingZeros(value);
        return (exponent - SUB_BITS + 1) << SUB_BITS | (int) (value >>> exponent - SUB_BITS) & (1 << SUB_BITS) - 1;
    }
}
