package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;

/** A running program: its memory, its image, what it has open. */
public final class Guest {
    static final int PAGE = 4096;

    /** Memory behind the image at the start: enough for what a small program allocates. */
    private static final int FIRST_HEAP = 64 << 10;

    /** The pages below it stay unused, as they are natively. */
    private static final int LOWEST_STACK = 0x1000;

    /** A stack below the image must have at least this; otherwise it has that much behind it. */
    private static final int STACK = 64 << 10;

    private static final int SEGMENT_LOAD = 1;

    /** The whole memory: a word's index is its address without the last two bits. */
    public int[] memory;

    /** Nothing interrupts a program here; translated code that asks finds this. */
    public boolean poll;

    final GuestCode code;
    final Console console;
    final boolean bigEndian;
    final Signals signals = new Signals();
    final Files files;

    private final byte[] image;
    private UnwindTables unwindTables;
    private int start = Integer.MAX_VALUE;
    private int headers;

    /** Where the heap begins and ends, and the end of everything behind it. */
    private int heapStart;

    private int heapEnd;
    private int top;

    Guest(GuestCode code, InputStream image, Console console) throws IOException {
        this.code = code;
        this.console = console;
        bigEndian = code.bigEndian();
        files = new Files(code);
        if (image == null) {
            throw new IOException("the jar has no image of the program");
        }
        this.image = Files.all(image);
        load();
    }

    /** Runs it from its entry to its end; returns its status. */
    int run(String[] arguments) {
        GuestThread t = new GuestThread(this);
        try {
            int sp = buildStack(t, arguments);
            code.call(t, word(24), sp, 0, 0, 0, 0);
            return 0;
        } catch (GuestExit end) {
            return end.status;
        } catch (GuestThrow uncaught) {
            say("terminate called after throwing an exception\n");
            return 128 + Signals.ABRT;
        } catch (IndexOutOfBoundsException fault) {
            return endOf(fault);
        } catch (ArithmeticException fault) {
            return endOf(fault);
        }
    }

    /** The status that a fault ends a program with that does not handle it. */
    private int endOf(RuntimeException fault) {
        say("fettle: ".concat(fault.toString()).concat("\n"));
        return 128 + (fault instanceof ArithmeticException ? 8 : 11);
    }

    private void say(String text) {
        byte[] bytes = text.getBytes();
        console.write(bytes, bytes.length, true);
    }

    /** Which code handles exceptions: most programs never ask. */
    UnwindTables unwindTables() {
        if (unwindTables == null) {
            unwindTables = UnwindTables.of(code);
        }
        return unwindTables;
    }

    // The image.

    private int half(int at) {
        int a = image[at] & 255;
        int b = image[at + 1] & 255;
        return bigEndian ? a << 8 | b : b << 8 | a;
    }

    private int word(int at) {
        int a = half(at);
        int b = half(at + 2);
        return bigEndian ? a << 16 | b : b << 16 | a;
    }

    private void load() {
        int first = word(28);
        int count = half(44);
        int end = 0;
        for (int at = first; at < first + count * 32; at += 32) {
            if (word(at) == SEGMENT_LOAD) {
                int address = word(at + 8);
                start = Math.min(start, address);
                end = Math.max(end, address + word(at + 20));
                if (headers == 0 && word(at + 4) == 0) {
                    headers = address + first;
                }
            }
        }
        heapStart = end + PAGE - 1 & -PAGE;
        heapEnd = heapStart;
        top = heapStart;
        memory = new int[heapStart + FIRST_HEAP >>> 2];
        GuestThread t = new GuestThread(this);
        for (int at = first; at < first + count * 32; at += 32) {
            if (word(at) == SEGMENT_LOAD) {
                t.write(word(at + 8), image, word(at + 4), word(at + 16));
            }
        }
    }

    // The heap: one end for brk and mappings, so that nothing between them is paid for.

    int brk(GuestThread t, int end) {
        if (end < heapStart || top != heapEnd || !ensure(t, end)) {
            return heapEnd;
        }
        t.clear(heapEnd + 3 & -4, end + 3 & -4);
        heapEnd = end;
        top = end;
        return end;
    }

    /** Memory for a mapping: its address, or 0. */
    int map(GuestThread t, int length) {
        int from = top + PAGE - 1 & -PAGE;
        int to = from + (length + PAGE - 1 & -PAGE);
        if (length <= 0 || to < from || !ensure(t, to)) {
            return 0;
        }
        t.clear(from, to);
        top = to;
        return from;
    }

    /** Only what was mapped last comes back. */
    void unmap(int from, int length) {
        int to = from + (length + PAGE - 1 & -PAGE);
        if (to == top && from >= heapEnd) {
            top = from;
        }
    }

    private boolean ensure(GuestThread t, int end) {
        int words = end + 3 >>> 2;
        if (end < 0) {
            return false;
        }
        if (words <= memory.length) {
            return true;
        }
        try {
            // A quarter more: the old array and the new one exist at once.
            int[] larger = new int[Math.max(words, memory.length + (memory.length >>> 2))];
            System.arraycopy(memory, 0, larger, 0, memory.length);
            memory = larger;
            t.memory = larger;
            return true;
        } catch (OutOfMemoryError e) {
            return false;
        }
    }

    // The stack, as Linux leaves it.

    private int buildStack(GuestThread t, String[] arguments) {
        int at = start & -PAGE;
        if (at - LOWEST_STACK < STACK) {
            at = map(t, STACK) + STACK;
        }
        at -= 16;
        int[] strings = new int[arguments.length + 1];
        for (int i = 0; i < strings.length; i++) {
            byte[] text = (i == 0 ? "program" : arguments[i - 1]).getBytes();
            at -= text.length + 1;
            t.write(at, text, 0, text.length);
            t.storeByte(at + text.length, 0);
            strings[i] = at;
        }
        at -= 16;
        int random = at;
        for (int i = 0; i < 16; i++) {
            t.storeByte(random + i, (int) (System.currentTimeMillis() >>> (i & 7)) * 31 + i);
        }
        int[] auxiliary = {
            3, headers, 4, 32, 5, half(44), 6, PAGE, 7, 0, 8, 0, 9, word(24), 11, 0, 12, 0, 13, 0,
            14, 0, 16, 0, 17, 100, 23, 0, 25, random, 31, strings[0], 0, 0,
        };
        int sp = at - (strings.length + 3 + auxiliary.length) * 4 & -16;
        t.store(sp, strings.length);
        int next = sp + 4;
        for (int i = 0; i < strings.length; i++, next += 4) {
            t.store(next, strings[i]);
        }
        t.store(next, 0);
        t.store(next + 4, 0);
        next += 8;
        for (int i = 0; i < auxiliary.length; i++, next += 4) {
            t.store(next, auxiliary[i]);
        }
        return sp;
    }
}
