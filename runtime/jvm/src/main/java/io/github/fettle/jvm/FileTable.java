package io.github.fettle.jvm;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Descriptors: small numbers for open files. */
final class FileTable {
    /** The soft limit that the guest sees. */
    static final int LIMIT = 1024;

    private static final class Slot {
        final OpenFile file;
        boolean closeOnExec;

        Slot(OpenFile file, boolean closeOnExec) {
            this.file = file;
            this.closeOnExec = closeOnExec;
        }
    }

    private final List<Slot> slots = new ArrayList<>();

    /** With descriptors 0, 1 and 2 as the options say. */
    static FileTable standard(Guest guest) {
        FileTable table = new FileTable();
        guest.vfs.setFiles(table);
        for (int i = 0; i < 3; i++) {
            table.slots.add(new Slot(Standard.open(guest.options, i), false));
        }
        return table;
    }

    synchronized OpenFile get(int descriptor) throws Errno {
        Slot slot = slot(descriptor);
        return slot.file;
    }

    private Slot slot(int descriptor) throws Errno {
        Slot slot = descriptor < 0 || descriptor >= slots.size() ? null : slots.get(descriptor);
        if (slot == null) {
            throw new Errno(Errno.EBADF);
        }
        return slot;
    }

    /** The lowest free number from one on. */
    synchronized int add(OpenFile file, int from, boolean closeOnExec) throws IOException {
        int number = from;
        while (number < slots.size() && slots.get(number) != null) {
            number++;
        }
        if (number >= LIMIT) {
            file.release();
            throw new Errno(Errno.EMFILE);
        }
        put(number, new Slot(file, closeOnExec));
        return number;
    }

    int add(OpenFile file, boolean closeOnExec) throws IOException {
        return add(file, 0, closeOnExec);
    }

    private void put(int number, Slot slot) {
        while (number >= slots.size()) {
            slots.add(null);
        }
        slots.set(number, slot);
    }

    int duplicate(int descriptor, int from, boolean closeOnExec) throws IOException {
        if (from < 0 || from >= LIMIT) {
            throw new Errno(Errno.EINVAL);
        }
        OpenFile file = get(descriptor);
        file.retain();
        return add(file, from, closeOnExec);
    }

    int duplicateTo(int descriptor, int target, boolean closeOnExec) throws IOException {
        if (target < 0 || target >= LIMIT) {
            throw new Errno(Errno.EBADF);
        }
        OpenFile file = get(descriptor);
        if (descriptor == target) {
            return target;
        }
        file.retain();
        Slot before;
        synchronized (this) {
            before = target < slots.size() ? slots.get(target) : null;
            put(target, new Slot(file, closeOnExec));
        }
        if (before != null) {
            before.file.release();
        }
        return target;
    }

    void close(int descriptor) throws IOException {
        Slot slot;
        synchronized (this) {
            slot = slot(descriptor);
            slots.set(descriptor, null);
        }
        slot.file.release();
    }

    synchronized boolean closesOnExec(int descriptor) throws Errno {
        return slot(descriptor).closeOnExec;
    }

    synchronized void setCloseOnExec(int descriptor, boolean on) throws Errno {
        slot(descriptor).closeOnExec = on;
    }

    synchronized int size() {
        return slots.size();
    }

    /** Closes all at the guest's end. */
    void closeAll() throws IOException {
        for (int i = 0; i < size(); i++) {
            try {
                close(i);
            } catch (Errno e) {
                // Not open.
            }
        }
    }
}
