package io.github.fettle.jvm;

/** The one thread of a program. */
public final class GuestThread extends Registers {
    public final Guest guest;

    /** The same array as {@link Guest#memory}: only a system call replaces it. */
    public int[] memory;

    GuestThread(Guest guest) {
        this.guest = guest;
        this.memory = guest.memory;
    }

    /** No exception of Java passes a program's frames. */
    Throwable standsFor(int exception) {
        return null;
    }

    int load(int address) {
        return memory[address >>> 2];
    }

    void store(int address, int value) {
        memory[address >>> 2] = value;
    }

    byte loadByte(int address) {
        return guest.bigEndian
                ? MemoryBig.loadByte(memory, address)
                : Memory.loadByte(memory, address);
    }

    void storeByte(int address, int value) {
        if (guest.bigEndian) {
            MemoryBig.storeByte(memory, address, value);
        } else {
            Memory.storeByte(memory, address, value);
        }
    }

    /** Fills words with zeros. */
    void clear(int from, int to) {
        for (int at = from >>> 2; at < to >>> 2; at++) {
            memory[at] = 0;
        }
    }

    void read(int address, byte[] to, int count) {
        for (int i = 0; i < count; i++) {
            to[i] = loadByte(address + i);
        }
    }

    void write(int address, byte[] from, int first, int count) {
        for (int i = 0; i < count; i++) {
            storeByte(address + i, from[first + i]);
        }
    }

    /** The text at an address, up to its end. */
    String text(int address) {
        StringBuffer text = new StringBuffer();
        for (int at = address; loadByte(at) != 0; at++) {
            text.append((char) (loadByte(at) & 255));
        }
        return text.toString();
    }

    /** The 64-bit value of a register pair: the calling convention follows the byte order. */
    long pair(int first, int second) {
        int low = guest.bigEndian ? second : first;
        int high = guest.bigEndian ? first : second;
        return (long) high << 32 | low & 0xffffffffL;
    }

    void storeLong(int address, long value) {
        int low = guest.bigEndian ? 4 : 0;
        store(address + low, (int) value);
        store(address + 4 - low, (int) (value >>> 32));
    }
}
