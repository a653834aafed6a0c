package io.github.fettle.jvm;

/**
 * The o32 calling convention of MIPS: arguments are words at the stack pointer, the first four of them
 * in registers, 64-bit ones at a multiple of eight; the first two may be in floating-point registers.
 */
final class O32 extends Abi {
    @Override
    Writer writer(GuestThread t) {
        return new Words(t);
    }

    @Override
    Reader reader(GuestThread t, int sp, int a0, int a1, int a2, int a3) {
        return new Arguments(t, sp, a0, a1, a2, a3, t.f12, t.f14);
    }

    private static final class Words extends Writer {
        private final GuestThread t;
        private int position;
        private boolean allFloating = true;

        Words(GuestThread t) {
            this.t = t;
        }

        @Override
        void addInt(int value) {
            word(value);
            next(false, 0);
        }

        @Override
        void addLong(long value) {
            addPair(value);
            next(false, 0);
        }

        @Override
        void addFloat(float value) {
            int bits = Float.floatToRawIntBits(value);
            word(bits);
            next(true, bits & 0xffff_ffffL);
        }

        @Override
        void addDouble(double value) {
            long bits = Double.doubleToRawLongBits(value);
            addPair(bits);
            next(true, bits);
        }

        /** A structure that is passed by value is a row of words. */
        @Override
        void addStructure(Class<?> type, int address) {
            if (Copies.alignment(type) == 8) {
                align();
            }
            for (int i = 0; i < Copies.size(type); i += 4) {
                addInt(t.load(address + i));
            }
        }

        private void align() {
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
    }

    /** The arguments of a call. */
    static final class Arguments extends Reader {
        private final GuestThread t;
        private final int sp;
        private final int[] registers;
        private int count;
        private int position;
        private boolean allFloating = true;

        private final long f12;

        private final long f14;

        /** With floating-point arguments in the last two. */
        Arguments(GuestThread t, int sp, int a0, int a1, int a2, int a3, long f12, long f14) {
            this.t = t;
            this.sp = sp;
            this.registers = new int[] {a0, a1, a2, a3};
            this.f12 = f12;
            this.f14 = f14;
        }

        private int word() {
            int index = count++;
            return index < PASSED ? registers[index] : t.load(sp + index * 4);
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

        @Override
        int nextInt() {
            inRegister(false);
            return word();
        }

        @Override
        long nextLong() {
            inRegister(false);
            return pair();
        }

        @Override
        float nextFloat() {
            int bits = word();
            return Float.intBitsToFloat(inRegister(true) ? (int) register() : bits);
        }

        @Override
        double nextDouble() {
            long bits = pair();
            return Double.longBitsToDouble(inRegister(true) ? register() : bits);
        }
    }

    /** The stack has room for the words in registers, too. */
    @Override
    int place(GuestThread t, int top, int[] words) {
        int sp = top - Math.max(PASSED, words.length) * 4 & -8;
        for (int i = PASSED; i < words.length; i++) {
            t.store(sp + i * 4, words[i]);
        }
        return sp;
    }

    @Override
    boolean returnsInMemory(Class<?> type) {
        return true;
    }

    @Override
    void storeStructure(GuestThread t, long registers, Class<?> type, int address) {
        throw new IllegalStateException("structures are returned in memory");
    }

    /** The first register has the word that is first in memory. */
    @Override
    long toLong(GuestThread t, long registers) {
        return t.guest.bigEndian ? Long.rotateRight(registers, 32) : registers;
    }

    @Override
    float toFloat(GuestThread t, long registers) {
        return Float.intBitsToFloat((int) t.f0);
    }

    @Override
    double toDouble(GuestThread t, long registers) {
        return Double.longBitsToDouble(t.f0);
    }

    @Override
    long ofLong(GuestThread t, long value) {
        return toLong(t, value);
    }

    @Override
    long ofFloat(GuestThread t, float value) {
        t.f0 = Float.floatToRawIntBits(value) & 0xffff_ffffL;
        return 0;
    }

    @Override
    long ofDouble(GuestThread t, double value) {
        t.f0 = Double.doubleToRawLongBits(value);
        return 0;
    }
}
