package io.github.fettle.jvm;

import java.util.Iterator;

/** Java's stack, on which the frames of a guest's functions are. */
final class Frames {
    private static final StackWalker WALKER = StackWalker.getInstance();

    private Frames() {}

    /** The first phase: looks for what handles an exception, and leaves the stack alone. */
    static Handler search(GuestThread t, int exception, int sp) {
        return WALKER.walk(frames -> search(t, exception, sp, frames.iterator()));
    }

    private static Handler search(
            GuestThread t, int exception, int sp, Iterator<StackWalker.StackFrame> frames) {
        UnwindTables tables = t.guest.unwindTables();
        while (frames.hasNext()) {
            StackWalker.StackFrame frame = frames.next();
            String type = frame.getClassName();
            if (type.startsWith(tables.home)) {
                int pc = tables.call(type, frame.getMethodName(), frame.getByteCodeIndex());
                if (pc != 0 && Unwinder.handles(t, exception, pc, sp)) {
                    return Handler.GUEST;
                }
            } else if (type.equals(Guest.CLASS) && frame.getMethodName().equals("call")) {
                // Java called the guest, and gets what it throws.
                return Handler.JAVA;
            }
        }
        return Handler.NONE;
    }
}
