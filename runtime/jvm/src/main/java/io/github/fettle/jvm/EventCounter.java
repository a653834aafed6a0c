package io.github.fettle.jvm;

import java.io.IOException;

/** {@code eventfd}: a number that readers take and writers add to. */
final class EventCounter extends OpenFile {
    private static final long MOST = -2; // unsigned: 2^64 - 2

    private final Guest guest;
    private final boolean semaphore;
    private long value;

    EventCounter(Guest guest, int flags, int initial, boolean semaphore) {
        super(flags | Flags.O_RDWR);
        this.guest = guest;
        this.value = initial & 0xffff_ffffL;
        this.semaphore = semaphore;
    }

    long take(GuestThread t) throws IOException {
        synchronized (guest.waits) {
            if (value == 0 && nonBlocking()) {
                throw new Errno(Errno.EAGAIN);
            }
            guest.waits.await(t, () -> value != 0, Waits.FOREVER);
            long taken = semaphore ? 1 : value;
            value -= taken;
            guest.waits.changed();
            return taken;
        }
    }

    void add(GuestThread t, long amount) throws IOException {
        if (amount == -1) {
            throw new Errno(Errno.EINVAL);
        }
        synchronized (guest.waits) {
            if (!fits(amount) && nonBlocking()) {
                throw new Errno(Errno.EAGAIN);
            }
            guest.waits.await(t, () -> fits(amount), Waits.FOREVER);
            value += amount;
            guest.waits.changed();
        }
    }

    private boolean fits(long amount) {
        return Long.compareUnsigned(amount, MOST - value) <= 0;
    }

    @Override
    int read(GuestThread t, byte[] to, int at, int length) throws IOException {
        throw new AssertionError("goes through take: the value has the guest's byte order");
    }

    @Override
    int write(GuestThread t, byte[] from, int at, int length) throws IOException {
        throw new AssertionError("goes through add");
    }

    @Override
    int ready() {
        synchronized (guest.waits) {
            return (value != 0 ? Flags.POLLIN : 0) | (fits(1) ? Flags.POLLOUT : 0);
        }
    }

    @Override
    Attributes attributes() {
        return Attributes.of(0600, 3);
    }
}
