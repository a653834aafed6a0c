package org.acme.runs;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.fettle.jvm.GuestException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

final class RunsTest {
    @Test
    void packsAndUnpacks() {
        byte[] text = "aaaabbbbbbbbc".getBytes(StandardCharsets.US_ASCII);
        try (Runs runs = Runs.open()) {
            byte[] packed = runs.pack(text);
            assertArrayEquals(new byte[] {4, 'a', 8, 'b', 1, 'c'}, packed);
            assertArrayEquals(text, runs.unpack(packed));
            assertEquals(3, runs.stats_of(text).runs());
            assertEquals(13.0 / 3, runs.stats_of(text).mean());
            assertThrows(GuestException.class, () -> runs.unpack(new byte[] {1}));
        }
    }
}
