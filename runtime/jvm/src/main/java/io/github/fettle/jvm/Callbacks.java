package io.github.fettle.jvm;

import java.util.ArrayList;
import java.util.List;

/**
 * Function pointers that lead to Java.
 *
 * <p>They lie where no memory is, so that no guest function can have the same address.
 */
public final class Callbacks {
    private static final int BASE = 0xf000_0000;
    private static final int STEP = 16;

    /** A Java function with the guest's calling convention. */
    public interface Function {
        /**
         * Called by the guest. Arguments from the fifth on are where its calling convention has
         * them: at {@code sp + 16} on MIPS, in the thread's {@code a4} to {@code a7} and at {@code sp}
         * on RISC-V.
         *
         * @return {@code v0 | v1 << 32}
         */
        long call(GuestThread t, int sp, int a0, int a1, int a2, int a3);
    }

    private final List<Function> functions = new ArrayList<>();

    Callbacks() {}

    /** Makes a function pointer. It is good until {@link #release}. */
    public synchronized int add(Function function) {
        int free = functions.indexOf(null);
        if (free < 0) {
            free = functions.size();
            functions.add(null);
        }
        functions.set(free, function);
        return BASE + free * STEP;
    }

    public synchronized void release(int address) {
        int index = index(address);
        if (index >= 0) {
            functions.set(index, null);
        }
    }

    private int index(int address) {
        int index = (address - BASE) / STEP;
        boolean ours = address >= BASE && address < 0 && (address - BASE) % STEP == 0;
        return ours && index < functions.size() ? index : -1;
    }

    private synchronized Function find(int address) {
        int index = index(address);
        return index < 0 ? null : functions.get(index);
    }

    /**
     * Calls what an address means that no guest function has: a callback, a
     * nested function's trampoline, or a fault.
     *
     * <p>Translated code's dispatch ends here.
     */
    public static long dispatch(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3) {
        Function function = t.guest.callbacks.find(address);
        if (function == null && Trampoline.isAt(t, address)) {
            return Trampoline.call(t, address, sp, a0, a1, a2, a3);
        } else if (function == null) {
            throw new IndexOutOfBoundsException(
                    "call of 0x" + Integer.toHexString(address) + ", which is no function");
        }
        int before = t.guest.enter(t, sp);
        try {
            return function.call(t, sp, a0, a1, a2, a3);
        } catch (RuntimeException | AssertionError e) {
            throw Foreign.passing(t, e);
        } finally {
            t.guest.leave(before);
        }
    }
}
