package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A guest that does not end by itself is ended. */
@Timeout(20)
final class LimitsTest {
    private static final int LOOP = 0x1000_ffff; // b .
    private static final int NOP = 0;

    private static Guest endless(Options options) throws IOException {
        return Guest.open(
                new Interpreter(false), new ElfImage(TinyProgram.file(LOOP, NOP)), options);
    }

    @Test
    void fuelEnds() throws IOException {
        assertEquals(128 + 24, endless(Options.none().fuel(1000)).run());
    }

    @Test
    void interruptEnds() throws IOException {
        Guest guest = endless(Options.none());
        Thread other = new Thread(guest::interrupt);
        other.start();
        assertEquals(128 + 15, guest.run());
    }

    @Test
    void memoryEndsAtItsLimit() throws IOException {
        Guest guest = endless(Options.none().memory(16 << 20));
        GuestThread t = guest.thread();
        long result = Kernel.call(t, 4210, 0, 64 << 20, 3, 0x802, TinyProgram.START);
        assertEquals(Errno.ENOMEM, (int) result);
        assertEquals(1, (int) (result >>> 32));
        int end = guest.map.brk(t, 0);
        assertEquals(end, guest.map.brk(t, 64 << 20));
        assertEquals(end + 4096, guest.map.brk(t, end + 4096));
    }
}
