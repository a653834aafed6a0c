package io.github.fettle.jvm;

/** The registers of one interpreted thread. */
final class Cpu {
    static final int V0 = 2;
    static final int V1 = 3;
    static final int A0 = 4;
    static final int A3 = 7;
    static final int T9 = 25;
    static final int SP = 29;
    static final int RA = 31;

    final int[] r = new int[32];

    /** Floating-point registers in the mode of o32: a double is an even and the next odd one. */
    final int[] f = new int[32];

    int hi;
    int lo;
    int pc;
    int next;
    int control;

    /** What {@code ll} saw, and where. */
    int linkedAddress = -1;

    int linkedValue;

    /** Of the instruction that runs, for faults: a delay slot starts again at its branch. */
    int current;

    boolean inDelaySlot;

    void jump(int target) {
        pc = target;
        next = target + 4;
        inDelaySlot = false;
    }

    float single(int n) {
        return Float.intBitsToFloat(f[n]);
    }

    void single(int n, float value) {
        f[n] = Float.floatToRawIntBits(value);
    }

    long bits(int n) {
        return (long) f[n | 1] << 32 | f[n & ~1] & 0xffff_ffffL;
    }

    void bits(int n, long value) {
        f[n & ~1] = (int) value;
        f[n | 1] = (int) (value >>> 32);
    }

    double real(int n) {
        return Double.longBitsToDouble(bits(n));
    }

    void real(int n, double value) {
        bits(n, Double.doubleToRawLongBits(value));
    }

    boolean condition(int n) {
        return (control & conditionBit(n)) != 0;
    }

    void condition(int n, boolean on) {
        control = on ? control | conditionBit(n) : control & ~conditionBit(n);
    }

    private static int conditionBit(int n) {
        return n == 0 ? 1 << 23 : 1 << 24 + n;
    }

    long product() {
        return (long) hi << 32 | lo & 0xffff_ffffL;
    }

    void product(long value) {
        hi = (int) (value >>> 32);
        lo = (int) value;
    }

    Cpu copy() {
        Cpu copy = new Cpu();
        copy.set(this);
        return copy;
    }

    void set(Cpu other) {
        System.arraycopy(other.r, 0, r, 0, 32);
        System.arraycopy(other.f, 0, f, 0, 32);
        hi = other.hi;
        lo = other.lo;
        pc = other.pc;
        next = other.next;
        control = other.control;
        linkedAddress = -1;
        current = other.current;
        inDelaySlot = other.inDelaySlot;
    }
}
