package org.acme.words;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

final class WordsTest {
    @Test
    void callsBothWays() throws IOException {
        try (WordsLibrary library = WordsLibrary.open()) {
            Words words = library.functions();
            assertEquals(4, words.countWords("C runs in Java"));
            List<String> found = new ArrayList<>();
            String text = "one three  two";
            words.eachWord(text, (start, length) ->
                    found.add(text.substring(start, start + length)));
            assertEquals(List.of("one", "three", "two"), found);
            byte[] letters = "fettle".getBytes(StandardCharsets.US_ASCII);
            assertEquals(
                    "sorted 6 letters, 9.4% of the buffer",
                    words.sortLetters(letters, letters.length));
            assertEquals("eefltt", new String(letters, StandardCharsets.US_ASCII));
        }
    }
}
