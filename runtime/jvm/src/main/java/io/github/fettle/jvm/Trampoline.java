package io.github.fettle.jvm;

/**
 * Code that a guest writes to its stack when it takes the address of a nested function: it loads the
 * static chain, which leads to the variables around, and jumps to the function.
 *
 * <p>GCC has one template for it, whose words are the same in all programs; what follows them are the
 * chain and the function.
 */
final class Trampoline {
    private static final int[] TEMPLATE = {
        0x8f210014, // lw $1, 20($25)
        0x8f2f0010, // lw $15, 16($25)
        0x00200008, // jr $1
        0x0020c821, // move $25, $1
    };

    private static final int CHAIN = 16;
    private static final int FUNCTION = 20;
    private static final int SIZE = 24;

    private Trampoline() {}

    /** Whether a trampoline is at an address. */
    static boolean isAt(GuestThread t, int address) {
        if (address <= 0 || address % 4 != 0 || address > t.memory.length - SIZE) {
            return false;
        }
        for (int i = 0; i < TEMPLATE.length; i++) {
            if (t.load(address + i * 4) != TEMPLATE[i]) {
                return false;
            }
        }
        return true;
    }

    /** Does what the trampoline at an address does. */
    static long call(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3) {
        t.chain = t.load(address + CHAIN);
        return t.guest.code.call(t, t.load(address + FUNCTION), sp, a0, a1, a2, a3);
    }
}
