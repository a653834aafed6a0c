package io.github.fettle.jvm;

/** Methods of Java's library that CLDC lacks, under their names there. */
public final class Substitutes {
    private Substitutes() {}

    public static int compareUnsigned(int a, int b) {
        a ^= Integer.MIN_VALUE;
        b ^= Integer.MIN_VALUE;
        return a < b ? -1 : a == b ? 0 : 1;
    }

    public static int compare(int a, int b) {
        return a < b ? -1 : a == b ? 0 : 1;
    }

    public static int numberOfLeadingZeros(int value) {
        if (value <= 0) {
            return value == 0 ? 32 : 0;
        }
        int zeros = 31;
        for (int width = 16; width != 0; width >>= 1) {
            if (value >= 1 << width) {
                zeros -= width;
                value >>>= width;
            }
        }
        return zeros;
    }

    public static int rotateRight(int value, int distance) {
        return value >>> distance | value << -distance;
    }

    public static int reverseBytes(int value) {
        return value << 24 | (value & 0xff00) << 8 | value >>> 8 & 0xff00 | value >>> 24;
    }

    public static int divideUnsigned(int a, int b) {
        return (int) ((a & 0xffffffffL) / (b & 0xffffffffL));
    }

    public static int remainderUnsigned(int a, int b) {
        return (int) ((a & 0xffffffffL) % (b & 0xffffffffL));
    }

    public static int addExact(int a, int b) {
        int sum = a + b;
        if (((a ^ sum) & (b ^ sum)) < 0) {
            throw new ArithmeticException("overflow");
        }
        return sum;
    }

    public static int subtractExact(int a, int b) {
        int difference = a - b;
        if (((a ^ b) & (a ^ difference)) < 0) {
            throw new ArithmeticException("overflow");
        }
        return difference;
    }

    /** CLDC knows one NaN. */
    public static int floatToRawIntBits(float value) {
        return Float.floatToIntBits(value);
    }

    /** CLDC knows one NaN. */
    public static long doubleToRawLongBits(double value) {
        return Double.doubleToLongBits(value);
    }
}
