package io.github.fettle.jvm;

/** What a guest hears about a terminal: Java can't ask for its modes, so these are the usual. */
final class Terminal {
    private static final int ICRNL_IXON = 0x500;
    private static final int OPOST_ONLCR = 5;
    private static final int B38400_CS8_CREAD = 0xbf;
    private static final int COOKED = 0x8a3b;

    private Terminal() {}

    static void attributes(GuestThread t, int at) {
        int[] words = {ICRNL_IXON, OPOST_ONLCR, B38400_CS8_CREAD, COOKED};
        for (int i = 0; i < words.length; i++) {
            t.store(at + i * 4, words[i]);
        }
        byte[] characters = {0, 3, 28, 127, 21, 1, 0, 0, 0, 17, 19, 26, 0, 18, 15, 23, 22, 4};
        t.memory[at + 16] = 0;
        System.arraycopy(characters, 1, t.memory, at + 17, characters.length - 1);
    }

    static void size(GuestThread t, int at) {
        t.storeShort(at, number("LINES", 24));
        t.storeShort(at + 2, number("COLUMNS", 80));
        t.storeShort(at + 4, 0);
        t.storeShort(at + 6, 0);
    }

    private static int number(String variable, int otherwise) {
        String text = System.getenv(variable);
        try {
            return text == null ? otherwise : Integer.parseInt(text);
        } catch (NumberFormatException e) {
            return otherwise;
        }
    }
}
