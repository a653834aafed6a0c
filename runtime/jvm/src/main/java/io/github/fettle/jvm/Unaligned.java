package io.github.fettle.jvm;

/** {@code lwl}, {@code lwr}, {@code swl} and {@code swr}: the parts of a word that is not aligned. */
final class Unaligned {
    private Unaligned() {}

    /** Which byte of its word an address is, counted from the most significant. */
    private static int fromTop(GuestThread t, int address) {
        int at = address & 3;
        return t.guest.bigEndian ? at : 3 - at;
    }

    static int loadLeft(GuestThread t, int address, int old) {
        int word = t.load(address & ~3);
        int shift = fromTop(t, address) * 8;
        return shift == 0 ? word : word << shift | old & (1 << shift) - 1;
    }

    static int loadRight(GuestThread t, int address, int old) {
        int word = t.load(address & ~3);
        int shift = (3 - fromTop(t, address)) * 8;
        return shift == 0 ? word : word >>> shift | old & ~(-1 >>> shift);
    }

    static void storeLeft(GuestThread t, int address, int value) {
        int word = t.load(address & ~3);
        int shift = fromTop(t, address) * 8;
        t.store(address & ~3, shift == 0 ? value : word & ~(-1 >>> shift) | value >>> shift);
    }

    static void storeRight(GuestThread t, int address, int value) {
        int word = t.load(address & ~3);
        int shift = (3 - fromTop(t, address)) * 8;
        int kept = (1 << shift) - 1;
        t.store(address & ~3, shift == 0 ? value : word & kept | value << shift);
    }
}
