package org.acme.words;

import java.io.IOException;

/** Counts the words of its arguments, in C. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException {
        try (WordsLibrary library = WordsLibrary.open()) {
            System.out.println(library.functions().countWords(String.join(" ", arguments)));
        }
    }
}
