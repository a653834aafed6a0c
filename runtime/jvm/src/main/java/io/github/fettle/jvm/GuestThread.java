package io.github.fettle.jvm;

import java.util.Arrays;

/** One thread of a guest, which is one Java thread. */
public final class GuestThread extends Registers {
    /** So many exceptions of Java may be handled at once in one thread, each in so many bytes. */
    private static final int STAND_INS = 16;

    private static final int STAND_IN_SIZE = 256;

    /** Memory that they take together. */
    static final int STAND_INS_SIZE = STAND_INS * STAND_IN_SIZE;

    public final Guest guest;

    /**
     * The same array as {@link Guest#memory}. Translated code keeps it in a local; only a system
     * call replaces it, and only while the guest has a single thread.
     */
    public byte[] memory;

    /** Integer arguments behind the fourth at calls by address, where registers have them. */
    public int a4;

    public int a5;
    public int a6;
    public int a7;

    /** The thread's number in the guest; the first thread has the process's. */
    final int id;

    /** Where to store 0 and wake a waiter at the thread's end (CLONE_CHILD_CLEARTID), or 0. */
    int clearOnExit;

    /** The head of the thread's list of robust mutexes, or 0. */
    int robustList;

    /** Signals that this thread holds back. */
    final SignalSet blocked = new SignalSet();

    /** Signals sent to this thread alone; guarded by {@link Signals}. */
    final SignalSet pending = new SignalSet();

    /** The stack pointer that the thread began with. */
    int stackBase;

    int alternateStack;
    int alternateStackSize;

    /** What the interpreter keeps for the thread. */
    Object registers;

    /** The Java thread, to wake it from a wait. */
    volatile Thread carrier;

    /** Exceptions of Java that pass the guest's frames, by the stand-ins that those frames see. */
    private final java.util.Map<Integer, Throwable> foreign = new java.util.HashMap<>();

    private int standIns;
    private int nextStandIn;

    GuestThread(Guest guest, int id) {
        this.guest = guest;
        this.id = id;
        this.memory = guest.memory;
    }

    /** Gives an exception of Java an address in the guest's memory; 0 if there is no memory left. */
    int standIn(Throwable e) {
        if (standIns == 0 && guest.image.isBare) {
            // Nothing of the program is there.
            standIns = guest.index(memory.length - STAND_INS_SIZE - 8 & -8);
        } else if (standIns == 0) {
            try {
                standIns = guest.map.map(this, STAND_INS_SIZE);
            } catch (Errno none) {
                return 0;
            }
        }
        // What __cxa_begin_catch makes of the address lies before it.
        int address = standIns + nextStandIn * STAND_IN_SIZE + STAND_IN_SIZE / 2;
        nextStandIn = (nextStandIn + 1) % STAND_INS;
        foreign.put(address, e);
        return address;
    }

    /** The exception of Java that an address stands for, or null. */
    Throwable standsFor(int address) {
        return foreign.get(address);
    }

    int load(int address) {
        return guest.bigEndian
                ? MemoryBig.loadInt(memory, address)
                : Memory.loadInt(memory, address);
    }

    void store(int address, int value) {
        if (guest.bigEndian) {
            MemoryBig.storeInt(memory, address, value);
        } else {
            Memory.storeInt(memory, address, value);
        }
    }

    void storeByte(int address, int value) {
        memory[address] = (byte) value;
    }

    /** Fills bytes with zeros. */
    void clear(int from, int to) {
        Arrays.fill(memory, from, to, (byte) 0);
    }

    int loadShort(int address) {
        return guest.bigEndian
                ? MemoryBig.loadShort(memory, address)
                : Memory.loadShort(memory, address);
    }

    void storeShort(int address, int value) {
        if (guest.bigEndian) {
            MemoryBig.storeShort(memory, address, value);
        } else {
            Memory.storeShort(memory, address, value);
        }
    }

    long loadLong(int address) {
        return guest.bigEndian
                ? MemoryBig.loadLong(memory, address)
                : Memory.loadLong(memory, address);
    }

    void storeLong(int address, long value) {
        if (guest.bigEndian) {
            MemoryBig.storeLong(memory, address, value);
        } else {
            Memory.storeLong(memory, address, value);
        }
    }

    /** The 64-bit value of a register pair: the calling convention follows the byte order. */
    long pair(int first, int second) {
        int low = guest.bigEndian ? second : first;
        int high = guest.bigEndian ? first : second;
        return (long) high << 32 | low & 0xffff_ffffL;
    }

    boolean compareAndSet(int address, int seen, int value) {
        return guest.bigEndian
                ? MemoryBig.compareAndSet(memory, address, seen, value)
                : Memory.compareAndSet(memory, address, seen, value);
    }
}
