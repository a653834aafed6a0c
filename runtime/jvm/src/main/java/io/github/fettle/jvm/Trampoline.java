package io.github.fettle.jvm;

/**
 * Code that a guest writes to its stack when it takes the address of a nested function: it loads the
 * static chain, which leads to the variables around, and jumps to the function.
 *
 * <p>GCC has one template for it, whose words are the same in all programs for MIPS; what follows them
 * are the chain and the function.
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

    // RISC-V has chain and function in the instructions: upper halves, then what is added to them.
    private static final int LUI_T2 = 0x3b7;
    private static final int LUI_T0 = 0x2b7;
    private static final int ADDI_T2_T2 = 0x38393;
    private static final int JR_T0 = 0x28067;
    private static final int IMMEDIATE_SHIFT = 20;
    private static final int UPPER_MASK = 0xfff;
    private static final int LOWER_MASK = 0xfffff;
    private static final int BARE_SIZE = 16;

    private Trampoline() {}

    /** Whether a trampoline is at an address. */
    static boolean isAt(GuestThread t, int address) {
        int at = t.guest.index(address);
        boolean isBare = t.guest.image.isBare;
        if (at <= 0 || at % 4 != 0 || at > t.memory.length - (isBare ? BARE_SIZE : SIZE)) {
            return false;
        }
        if (isBare) {
            return (t.load(at) & UPPER_MASK) == LUI_T2
                    && (t.load(at + 4) & UPPER_MASK) == LUI_T0
                    && (t.load(at + 8) & LOWER_MASK) == ADDI_T2_T2
                    && (t.load(at + 12) & LOWER_MASK) == JR_T0;
        }
        for (int i = 0; i < TEMPLATE.length; i++) {
            if (t.load(at + i * 4) != TEMPLATE[i]) {
                return false;
            }
        }
        return true;
    }

    /** Does what the trampoline at an address does. */
    static long call(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3) {
        int at = t.guest.index(address);
        int function;
        if (t.guest.image.isBare) {
            t.chain = sum(t, at, at + 8);
            function = sum(t, at + 4, at + 12);
        } else {
            t.chain = t.load(at + CHAIN);
            function = t.load(at + FUNCTION);
        }
        return t.guest.code.call(t, function, sp, a0, a1, a2, a3);
    }

    /** The number that two instructions add up. */
    private static int sum(GuestThread t, int upper, int lower) {
        return (t.load(upper) & ~UPPER_MASK) + (t.load(lower) >> IMMEDIATE_SHIFT);
    }
}
