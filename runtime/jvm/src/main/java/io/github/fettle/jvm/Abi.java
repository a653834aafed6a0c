package io.github.fettle.jvm;

/** A calling convention: where functions of C get their arguments and leave their results. */
abstract class Abi {
    /** Integer arguments that {@link GuestCode#call} passes; others are in the thread or on the stack. */
    static final int PASSED = 4;

    /** The convention of a program. */
    static Abi of(ElfImage image) {
        return image.isBare ? new Ilp32(image.floatSize) : new O32();
    }

    /** Puts arguments together, for a call from Java. */
    abstract static class Writer {
        private int[] words = new int[8];

        /** How many words there are. */
        protected int count;

        protected final void word(int value) {
            if (count == words.length) {
                words = java.util.Arrays.copyOf(words, count * 2);
            }
            words[count++] = value;
        }

        /** Adds an integer of at most 32 bits, or an address. */
        abstract void addInt(int value);

        abstract void addLong(long value);

        abstract void addFloat(float value);

        abstract void addDouble(double value);

        /** Adds the structure that a record stands for, which is in memory. */
        abstract void addStructure(Class<?> type, int address);

        /** Arguments outside of floating-point registers, for {@link Guest#call}. */
        final int[] words() {
            return java.util.Arrays.copyOf(words, count);
        }
    }

    /** Takes arguments apart, for a call from the guest. */
    abstract static class Reader {
        abstract int nextInt();

        abstract long nextLong();

        abstract float nextFloat();

        abstract double nextDouble();
    }

    abstract Writer writer(GuestThread t);

    /** Of a call by address, whose floating-point arguments are in the thread. */
    abstract Reader reader(GuestThread t, int sp, int a0, int a1, int a2, int a3);

    /**
     * Puts the words that {@link GuestCode#call} does not pass where the function looks for them.
     *
     * @return the stack pointer, below {@code top}
     */
    abstract int place(GuestThread t, int top, int[] words);

    /** Whether the caller of a function gives it memory for a structure as its result. */
    abstract boolean returnsInMemory(Class<?> type);

    /** Writes a structure that a function has returned in registers to memory. */
    abstract void storeStructure(GuestThread t, long registers, Class<?> type, int address);

    // Results in registers: of a function in C that Java called, and of one in Java.

    abstract long toLong(GuestThread t, long registers);

    abstract float toFloat(GuestThread t, long registers);

    abstract double toDouble(GuestThread t, long registers);

    abstract long ofLong(GuestThread t, long value);

    abstract long ofFloat(GuestThread t, float value);

    abstract long ofDouble(GuestThread t, double value);
}
