package dev.fettle.sensor;

/** One number: a level that is set, plus all that was added. */
public final class Scalar extends Sensor {
    /** A scalar. */
    public Scalar(String name, int major, int minor, int instance) {
        super(name, major, minor, instance, SCALAR, Policy.DROP, 65, 0, 0);
    }

    /** Adds to it; {@code delta} may be negative. */
    public void add(long delta) {
        if (isEnabled()) {
            LONG.getAndAdd(memory, writer().at, delta);
        }
    }

    /** Sets its level. */
    public void set(long value) {
        if (isEnabled()) {
            LONG.setRelease(memory, HEAD_LEVEL, value);
        }
    }
}
