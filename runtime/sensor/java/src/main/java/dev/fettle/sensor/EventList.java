package dev.fettle.sensor;

import java.util.concurrent.locks.LockSupport;

/** A list of events: {@code new EventList("web.request", 7, 1, Policy.DROP).commit(1, url, bytes)}. */
public final class EventList extends Sensor {
    private static final int LIMIT = 8;
    private static final int LOST = 16;
    private static final int TAKEN = 64;
    private static final int BEAT = 72;
    private static final long WAIT_LIMIT_NS = 2_000_000_000L;

    /** The beat of a consumer that was found dead. */
    private volatile long deadBeat;

    /** A list of events with up to two words. */
    public EventList(String name, int major, int minor, Policy policy) {
        this(name, major, minor, policy, 65, 5, 18);
    }

    /** A list with all that can be chosen, as FETTLE_DEFINE of fettle.h. */
    public EventList(String name, int major, int minor, Policy policy, int slots, int cellLog2, int ringLog2) {
        super(name, major, minor, 0, LIST, policy, slots, cellLog2, ringLog2);
    }

    /** Commits an event: its number and its words. Words that the cell has no room for are cut. */
    public void commit(int event, long... words) {
        commit(event, words, words.length);
    }

    /** Commits an event with the first {@code n} words of an array. */
    public void commit(int event, long[] words, int n) {
        if (!isEnabled()) {
            return;
        }
        long now = System.nanoTime();
        Writer w = writer();
        long cell = 1L << cellLog2;
        long at = (long) LONG.getAcquire(memory, w.at);
        for (;;) {
            if (at + cell > (long) LONG.getAcquire(memory, w.at + LIMIT)) {
                // An overwriting ring's limit is the largest number without a sign.
                long room = policy == Policy.OVERWRITE
                        ? Long.MAX_VALUE
                        : (long) LONG.getAcquire(memory, w.at + TAKEN) + (1L << ringLog2);
                if (at + cell > room) {
                    if (policy == Policy.WAIT && await(w)) {
                        at = (long) LONG.getAcquire(memory, w.at);
                        continue;
                    }
                    LONG.getAndAdd(memory, w.at + LOST, 1L);
                    return;
                }
                if (policy != Policy.OVERWRITE) {
                    LONG.setRelease(memory, w.at + LIMIT, room);
                }
            }
            if (!w.shared) {
                LONG.setRelease(memory, w.at, at + cell);
            } else if (!LONG.compareAndSet(memory, w.at, at, at + cell)) {
                at = (long) LONG.getAcquire(memory, w.at);
                continue;
            }
            break;
        }
        int place = w.at + LIST_RING + (int) (at & (1L << ringLog2) - 1);
        int mark = place + (int) cell - 8;
        long lap = at >>> ringLog2 & 0xffff;
        if (policy == Policy.OVERWRITE && !claim(mark, lap)) {
            return;
        }
        memory.putLong(place, now);
        int fits = Math.min(n, (int) cell / 8 - 2);
        for (int i = 0; i < fits; i++) {
            memory.putLong(place + 8 + 8 * i, words[i]);
        }
        LONG.setRelease(memory, mark, PID << 40 | lap << 24 | (event & 0xffffL) << 8 | fits << 1 | 1);
    }

    /** Claims a cell of a ring that is overwritten, as in fettle.h. */
    private boolean claim(int mark, long lap) {
        for (;;) {
            long seen = (long) LONG.getAcquire(memory, mark);
            if (seen < 0 || (short) ((seen >>> 24) - lap) > 0) {
                return false;
            }
            if (LONG.compareAndSet(memory, mark, seen, 1L << 63 | lap << 24)) {
                return true;
            }
        }
    }

    /** Waits until the consumer made room; false if it will not. */
    private boolean await(Writer w) {
        long visits = (long) LONG.getAcquire(memory, w.at + BEAT);
        long taken = (long) LONG.getAcquire(memory, w.at + TAKEN);
        long beat = (long) LONG.getAcquire(memory, HEAD_BEAT);
        long since = System.nanoTime();
        if (beat == deadBeat || taken + 1 == w.stuckAt) {
            return false;
        }
        for (int turn = 0; ; turn++) {
            long now = (long) LONG.getAcquire(memory, HEAD_BEAT);
            if (now == 0) {
                return false;
            }
            if (now != beat) {
                beat = now;
                since = System.nanoTime();
            } else if (turn > 64 && System.nanoTime() - since > WAIT_LIMIT_NS) {
                deadBeat = beat;
                return false;
            }
            long seen = (long) LONG.getAcquire(memory, w.at + BEAT);
            if ((long) LONG.getAcquire(memory, w.at + TAKEN) != taken) {
                return true;
            }
            if (seen - visits >= 2) {
                w.stuckAt = taken + 1;
                return false;
            }
            if (turn < 64) {
                Thread.onSpinWait();
            } else {
                LockSupport.parkNanos(20_000);
            }
        }
    }
}
