package dev.fettle.sensor;

/**
 * A number that others set, by {@code fettle sensors set} or a rule of {@code fettle watch}, and this program reads.
 *
 * <pre>{@code
 * static final Knob PATH = new Knob("put.path", 7, 4, 0, 0, 3); // 0 if nothing is said; else 0 to 3
 *
 * switch ((int) PATH.get()) { ... }
 * }</pre>
 *
 * <p>What was set for some time goes back to what it was when its setter ends, however that ends.
 */
public final class Knob extends Sensor {
    private static final int DEFAULT_AT = 64;
    private static final int LEAST_AT = 72;
    private static final int GREATEST_AT = 80;
    private static final int RESTING_AT = 88;

    private final long byDefault;
    private final long least;
    private final long greatest;

    /** A knob: its default, and the least and the greatest value that may be set. */
    public Knob(String name, int major, int minor, long byDefault, long least, long greatest) {
        super(name, major, minor, 0, KNOB, Policy.DROP, 1, 0, 0);
        if (least == Long.MIN_VALUE || byDefault < least || byDefault > greatest) {
            throw new IllegalArgumentException("a knob's default is between its least and its greatest value: " + name);
        }
        this.byDefault = byDefault;
        this.least = least;
        this.greatest = greatest;
    }

    /** The value: one load once it is known that there is a file. The first call makes it; until then it cannot be set. */
    public long get() {
        return isEnabled() ? (long) LONG.getOpaque(memory, SLOTS_AT) : byDefault;
    }

    @Override
    void fill(int at) {
        memory.putLong(at, byDefault);
        memory.putLong(at + DEFAULT_AT, byDefault);
        memory.putLong(at + LEAST_AT, least);
        memory.putLong(at + GREATEST_AT, greatest);
        memory.putLong(at + RESTING_AT, byDefault);
    }
}
