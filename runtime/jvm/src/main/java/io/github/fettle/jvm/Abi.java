package io.github.fettle.jvm;

/**
 * The o32 calling convention: arguments are words at the stack pointer, the first four of them in
 * registers, 64-bit ones at a multiple of eight; the first two may be in floating-point registers.
 */
final class Abi {
    private Abi() {}

    /** Puts arguments together, for a call from Java. */
    static final class Writer {
        private final GuestThread t;
        private int[] words = new int[8];
        private int count;
        private int position;
        private boolean allFloating = true;

        Writer(GuestThread t) {
            this.t = t;
        }

        private void word(int value) {
            if (count == words.length) {
                words = java.util.Arrays.copyOf(words, count * 2);
            }
            words[count++] = value;
        }

        void addInt(int value) {
            word(value);
            next(false, 0);
        }

        void addLong(long value) {
            addPair(value);
            next(false, 0);
        }

        void addFloat(float value) {
            int bits = Float.floatToRawIntBits(value);
            word(bits);
            next(true, bits & 0xffff_ffffL);
        }

        void addDouble(double value) {
            long bits = Double.doubleToRawLongBits(value);
            addPair(bits);
            next(true, bits);
        }

        /** Makes the next argument begin at a multiple of eight. */
        void align() {
            if (count % 2 != 0) {
                word(0);
            }
        }

        private void addPair(long value) {
            align();
            boolean big = t.guest.bigEndian;
            word((int) (big ? value >>> 32 : value));
            word((int) (big ? value : value >>> 32));
        }

        private void next(boolean floating, long bits) {
            allFloating &= floating;
            if (allFloating && position == 0) {
                t.f12 = bits;
            } else if (allFloating && position == 1) {
                t.f14 = bits;
            }
            position++;
        }

        int[] words() {
            return java.util.Arrays.copyOf(words, Math.max(4, count));
        }
    }

    /** Takes arguments apart, for a call from the guest. */
    static final class Reader {
        private final GuestThread t;
        private final int sp;
        private final int[] registers;
        private int count;
        private int position;
        private boolean allFloating = true;

        /** With floating-point arguments in these two registers. */
        private final long f12;

        private final long f14;

        Reader(GuestThread t, int sp, int a0, int a1, int a2, int a3, long f12, long f14) {
            this.t = t;
            this.sp = sp;
            this.registers = new int[] {a0, a1, a2, a3};
            this.f12 = f12;
            this.f14 = f14;
        }

        private int word() {
            int index = count++;
            return index < 4 ? registers[index] : t.load(sp + index * 4);
        }

        private long pair() {
            count += count % 2;
            int first = word();
            return t.pair(first, word());
        }

        private boolean inRegister(boolean floating) {
            allFloating &= floating;
            position++;
            return allFloating && position <= 2;
        }

        private long register() {
            return position == 1 ? f12 : f14;
        }

        int nextInt() {
            inRegister(false);
            return word();
        }

        long nextLong() {
            inRegister(false);
            return pair();
        }

        float nextFloat() {
            int bits = word();
            return Float.intBitsToFloat(inRegister(true) ? (int) register() : bits);
        }

        double nextDouble() {
            long bits = pair();
            return Double.longBitsToDouble(inRegister(true) ? register() : bits);
        }
    }

    /** A 64-bit result from {@code v0} and {@code v1}. */
    static long longResult(GuestThread t, long registers) {
        return t.guest.bigEndian ? Long.rotateRight(registers, 32) : registers;
    }
}
