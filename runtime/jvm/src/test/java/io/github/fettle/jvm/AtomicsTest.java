package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Compare-and-set on bytes, whichever way this JDK has. */
final class AtomicsTest {
    @Test
    void countsWithTwoThreads() throws InterruptedException {
        Atomics.setConcurrent();
        byte[] memory = new byte[64];
        Runnable body = () -> {
            for (int i = 0; i < 50_000; i++) {
                int seen;
                do {
                    seen = MemoryBig.loadLinked(memory, 8);
                } while (!MemoryBig.compareAndSet(memory, 8, seen, seen + 1));
            }
        };
        Thread other = new Thread(body);
        other.start();
        body.run();
        other.join();
        assertEquals(100_000, MemoryBig.loadInt(memory, 8));
    }

    @Test
    void bothByteOrders() {
        byte[] memory = new byte[16];
        assertTrue(Memory.compareAndSet(memory, 4, 0, 0x01020304));
        assertEquals(4, memory[4]);
        assertFalse(Memory.compareAndSet(memory, 4, 0, 1));
        assertTrue(MemoryBig.compareAndSet(memory, 4, 0x04030201, 5));
        assertEquals(5, memory[7]);
    }

    @Test
    void outsideIsAFault() {
        byte[] memory = new byte[16];
        for (int address : new int[] {-4, 16, 2, 0x7fff_fffc}) {
            assertThrows(
                    IndexOutOfBoundsException.class,
                    () -> Memory.compareAndSet(memory, address, 0, 1));
        }
    }
}
