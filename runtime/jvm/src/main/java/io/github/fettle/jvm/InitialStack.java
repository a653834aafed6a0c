package io.github.fettle.jvm;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * The first thread's stack as Linux leaves it to {@code __start}: argument count, arguments,
 * environment, auxiliary vector, and above them the strings.
 */
final class InitialStack {
    /** The pages below it stay unused, as they are natively. */
    private static final int LOWEST = 0x10000;

    /** Without one said, a stack that fits below the image must have at least this. */
    private static final int LEAST = 1 << 20;

    private static final int DEFAULT = 8 << 20;

    private static final int AT_PHDR = 3;
    private static final int AT_PHENT = 4;
    private static final int AT_PHNUM = 5;
    private static final int AT_PAGESZ = 6;
    private static final int AT_BASE = 7;
    private static final int AT_FLAGS = 8;
    private static final int AT_ENTRY = 9;
    private static final int AT_UID = 11;
    private static final int AT_EUID = 12;
    private static final int AT_GID = 13;
    private static final int AT_EGID = 14;
    private static final int AT_HWCAP = 16;
    private static final int AT_CLKTCK = 17;
    private static final int AT_SECURE = 23;
    private static final int AT_RANDOM = 25;
    private static final int AT_EXECFN = 31;

    private int top;

    private InitialStack(int top) {
        this.top = top;
    }

    /** Below the image where there is room, or in a mapping above it. */
    static InitialStack place(Guest guest, GuestThread t) throws Errno {
        int below = (guest.image.start & -MemoryMap.PAGE) - LOWEST;
        int wanted = guest.options.stackSize;
        if (below >= (wanted == 0 ? LEAST : wanted)) {
            return new InitialStack(guest.image.start & -MemoryMap.PAGE);
        }
        int size = MemoryMap.roundUp(wanted == 0 ? DEFAULT : wanted);
        return new InitialStack(guest.map.map(t, size) + size);
    }

    /** Writes all of it; returns the stack pointer. */
    int build(GuestThread t, Options options) {
        top -= 16;
        int name = string(t, options.name);
        int random = bytes(t, randomBytes());
        List<Integer> words = new ArrayList<>();
        words.add(options.arguments.size() + 1);
        words.add(name);
        for (String argument : options.arguments) {
            words.add(string(t, argument));
        }
        words.add(0);
        for (Map.Entry<String, String> variable : options.environment.entrySet()) {
            words.add(string(t, variable.getKey() + "=" + variable.getValue()));
        }
        words.add(0);
        ElfImage image = t.guest.image;
        int[] auxiliary = {
            AT_PHDR, image.headerAddress,
            AT_PHENT, 32,
            AT_PHNUM, image.headerCount,
            AT_PAGESZ, MemoryMap.PAGE,
            AT_BASE, 0,
            AT_FLAGS, 0,
            AT_ENTRY, image.entry,
            AT_UID, Identity.USER,
            AT_EUID, Identity.USER,
            AT_GID, Identity.GROUP,
            AT_EGID, Identity.GROUP,
            AT_HWCAP, 0,
            AT_CLKTCK, Clock.TICKS_PER_SECOND,
            AT_SECURE, 0,
            AT_RANDOM, random,
            AT_EXECFN, name,
            0, 0,
        };
        for (int word : auxiliary) {
            words.add(word);
        }
        int sp = top - words.size() * 4 & -16;
        for (int i = 0; i < words.size(); i++) {
            t.store(sp + i * 4, words.get(i));
        }
        return sp;
    }

    private static byte[] randomBytes() {
        byte[] bytes = new byte[16];
        // Seeds the guest's own stack protector and pointer guard, which protect nothing here.
        new Random().nextBytes(bytes);
        return bytes;
    }

    private int string(GuestThread t, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        top -= 1;
        t.memory[top] = 0;
        return bytes(t, bytes);
    }

    private int bytes(GuestThread t, byte[] bytes) {
        top -= bytes.length;
        System.arraycopy(bytes, 0, t.memory, top, bytes.length);
        return top;
    }
}
