package io.github.fettle.jvm;

/** Calls of addresses at which the file has no function. */
public final class Callbacks {
    /** Code that GCC puts on the stack for the address of a nested function. */
    private static final int[] TRAMPOLINE = {
        0x8f210014, // lw $1, 20($25)
        0x8f2f0010, // lw $15, 16($25)
        0x00200008, // jr $1
        0x0020c821, // move $25, $1
    };

    private static final int CHAIN = 16;
    private static final int FUNCTION = 20;
    private static final int SIZE = 24;

    private Callbacks() {}

    /** Calls what a nested function's trampoline leads to; anything else is a fault. */
    public static long dispatch(
            GuestThread t, int address, int sp, int a0, int a1, int a2, int a3) {
        if (!isTrampoline(t, address)) {
            throw new IndexOutOfBoundsException(
                    "no function at 0x".concat(Integer.toHexString(address)));
        }
        t.chain = t.load(address + CHAIN);
        return t.guest.code.call(t, t.load(address + FUNCTION), sp, a0, a1, a2, a3);
    }

    private static boolean isTrampoline(GuestThread t, int address) {
        if (address <= 0 || (address & 3) != 0 || address >>> 2 > t.memory.length - SIZE / 4) {
            return false;
        }
        for (int i = 0; i < TRAMPOLINE.length; i++) {
            if (t.load(address + i * 4) != TRAMPOLINE[i]) {
                return false;
            }
        }
        return true;
    }
}
