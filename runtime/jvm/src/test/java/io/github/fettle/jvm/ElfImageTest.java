package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Files that are no programs are refused with a reason. */
final class ElfImageTest {
    private static final byte[] GOOD = TinyProgram.file(0, 0);

    @Test
    void readsHeaders() {
        ElfImage image = new ElfImage(GOOD);
        assertEquals(TinyProgram.START + 84, image.entry);
        assertEquals(TinyProgram.START + 52, image.headerAddress);
        assertEquals(TinyProgram.START + GOOD.length, image.end);
    }

    @Test
    void refusesEveryTruncation() {
        for (int length = 0; length < GOOD.length; length++) {
            byte[] cut = Arrays.copyOf(GOOD, length);
            assertThrows(IllegalArgumentException.class, () -> new ElfImage(cut));
        }
    }

    @Test
    void damageIsRefusedOrLoadable() {
        Random random = new Random(1);
        for (int i = 0; i < 20_000; i++) {
            byte[] bytes = GOOD.clone();
            bytes[random.nextInt(84)] = (byte) random.nextInt();
            bytes[random.nextInt(84)] = (byte) random.nextInt();
            ElfImage image;
            try {
                image = new ElfImage(bytes);
            } catch (IllegalArgumentException e) {
                continue;
            }
            if (image.end < 8 << 20) {
                image.load(new byte[image.end]);
            }
        }
    }
}
