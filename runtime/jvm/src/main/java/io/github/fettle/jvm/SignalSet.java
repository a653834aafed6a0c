package io.github.fettle.jvm;

/** A set of signal numbers, 1 to 127: MIPS has twice as many as other machines. */
final class SignalSet {
    /** Bytes of the kernel's {@code sigset_t}. */
    static final int BYTES = 16;

    private long low;
    private long high;

    private static long bit(int signal) {
        return 1L << (signal - 1 & 63);
    }

    boolean contains(int signal) {
        return ((signal <= 64 ? low : high) & bit(signal)) != 0;
    }

    void add(int signal) {
        if (signal <= 64) {
            low |= bit(signal);
        } else {
            high |= bit(signal);
        }
    }

    void remove(int signal) {
        if (signal <= 64) {
            low &= ~bit(signal);
        } else {
            high &= ~bit(signal);
        }
    }

    void set(SignalSet other) {
        low = other.low;
        high = other.high;
    }

    void addAll(SignalSet other) {
        low |= other.low;
        high |= other.high;
    }

    void removeAll(SignalSet other) {
        low &= ~other.low;
        high &= ~other.high;
    }

    boolean isEmpty() {
        return (low | high) == 0;
    }

    /** The lowest member that is not in another set, or 0. */
    int firstNotIn(SignalSet other) {
        long a = low & ~other.low;
        if (a != 0) {
            return Long.numberOfTrailingZeros(a) + 1;
        }
        long b = high & ~other.high;
        return b != 0 ? Long.numberOfTrailingZeros(b) + 65 : 0;
    }

    /** The lowest member that is also in another set, or 0. */
    int firstIn(SignalSet other) {
        long a = low & other.low;
        if (a != 0) {
            return Long.numberOfTrailingZeros(a) + 1;
        }
        long b = high & other.high;
        return b != 0 ? Long.numberOfTrailingZeros(b) + 65 : 0;
    }

    SignalSet copy() {
        SignalSet copy = new SignalSet();
        copy.set(this);
        return copy;
    }

    static SignalSet load(GuestThread t, int address) {
        SignalSet set = new SignalSet();
        set.low = t.load(address) & 0xffff_ffffL | (long) t.load(address + 4) << 32;
        set.high = t.load(address + 8) & 0xffff_ffffL | (long) t.load(address + 12) << 32;
        return set;
    }

    void store(GuestThread t, int address) {
        t.store(address, (int) low);
        t.store(address + 4, (int) (low >>> 32));
        t.store(address + 8, (int) high);
        t.store(address + 12, (int) (high >>> 32));
    }
}
