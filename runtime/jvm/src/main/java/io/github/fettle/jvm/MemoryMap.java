package io.github.fettle.jvm;

import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/**
 * Which parts of a guest's address space are in use: the heap behind the image ({@code brk}), and
 * mappings above it.
 *
 * <p>Protections are not kept: the array has none. What the guest may not touch is what lies
 * outside the array.
 */
final class MemoryMap {
    static final int PAGE = 4096;

    /**
     * Left free for {@code brk} below the first mapping. glibc and musl map memory when
     * {@code brk} fails, so a heap that meets a mapping goes on elsewhere.
     */
    private static final int HEAP_RESERVE = 16 << 20;

    private final Guest guest;
    private final int heapStart;
    private final int mapStart;
    private int heapEnd;

    /** Start to mapping, not overlapping. */
    private final TreeMap<Integer, Mapping> mappings = new TreeMap<>();

    private static final class Mapping {
        final int end;

        /** The file to write changes back to, or null. */
        final OpenFile shared;

        final long offset;

        Mapping(int end, OpenFile shared, long offset) {
            this.end = end;
            this.shared = shared;
            this.offset = offset;
        }
    }

    MemoryMap(Guest guest, int imageEnd) {
        this.guest = guest;
        heapStart = roundUp(imageEnd);
        heapEnd = heapStart;
        mapStart = (int) Math.min((long) heapStart + HEAP_RESERVE, guest.limit & -PAGE);
    }

    static int roundUp(int size) {
        return size + PAGE - 1 & -PAGE;
    }

    synchronized int brk(GuestThread t, int end) {
        Integer next = mappings.ceilingKey(heapEnd);
        if (end < heapStart || next != null && end > next || !guest.ensure(t, end)) {
            return heapEnd;
        }
        if (end > heapEnd) {
            Arrays.fill(t.memory, heapEnd, end, (byte) 0);
        }
        heapEnd = end;
        return end;
    }

    /** Finds room, and makes the memory there. */
    synchronized int map(GuestThread t, int length) throws Errno {
        int start = place(length);
        put(t, start, length, null, 0);
        return start;
    }

    /** Maps a file: a copy, which goes back to the file if it is shared. */
    synchronized int mapFile(
            GuestThread t, int fixed, int length, OpenFile file, long offset, boolean shared)
            throws IOException {
        int start = fixed != 0 ? fixed : place(length);
        put(t, start, length, shared ? file : null, offset);
        int done = 0;
        while (done < length) {
            int count = file.readAt(t.memory, start + done, length - done, offset + done);
            if (count <= 0) {
                break;
            }
            done += count;
        }
        return start;
    }

    synchronized void mapFixed(GuestThread t, int start, int length) throws IOException {
        if (start >= heapStart && start < heapEnd || start < guest.image.end) {
            // Over the heap or the image: the memory is there and stays theirs.
            if (start < 0 || !guest.ensure(t, start + length)) {
                throw new Errno(Errno.ENOMEM);
            }
            Arrays.fill(t.memory, start, start + length, (byte) 0);
            return;
        }
        put(t, start, length, null, 0);
    }

    private void put(GuestThread t, int start, int length, OpenFile shared, long offset)
            throws Errno {
        if (start < 0 || start > Integer.MAX_VALUE - length || !guest.ensure(t, start + length)) {
            throw new Errno(Errno.ENOMEM);
        }
        try {
            unmap(t, start, length);
        } catch (IOException e) {
            throw new Errno(Errno.of(e));
        }
        Arrays.fill(t.memory, start, start + length, (byte) 0);
        if (shared != null) {
            shared.retain();
        }
        mappings.put(start, new Mapping(start + length, shared, offset));
    }

    private int place(int length) throws Errno {
        if (length <= 0) {
            throw new Errno(length == 0 ? Errno.EINVAL : Errno.ENOMEM);
        }
        int at = Math.max(mapStart, roundUp(heapEnd));
        for (Map.Entry<Integer, Mapping> next : mappings.tailMap(mapStart, true).entrySet()) {
            if (next.getKey() - at >= length) {
                return at;
            }
            at = Math.max(at, next.getValue().end);
        }
        if (at > guest.limit - length) {
            throw new Errno(Errno.ENOMEM);
        }
        return at;
    }

    synchronized void unmap(GuestThread t, int start, int length) throws IOException {
        int end = start + length;
        Map.Entry<Integer, Mapping> before = mappings.lowerEntry(start);
        if (before != null && before.getValue().end > start) {
            split(before.getKey(), start);
        }
        Iterator<Map.Entry<Integer, Mapping>> inside =
                mappings.subMap(start, true, Math.max(start, end - 1), true).entrySet().iterator();
        Mapping rest = null;
        int restStart = 0;
        while (inside.hasNext()) {
            Map.Entry<Integer, Mapping> entry = inside.next();
            Mapping mapping = entry.getValue();
            writeBack(t, entry.getKey(), Math.min(end, mapping.end), mapping);
            if (mapping.end > end) {
                rest = new Mapping(
                        mapping.end, mapping.shared, mapping.offset + end - entry.getKey());
                restStart = end;
            } else if (mapping.shared != null) {
                mapping.shared.release();
            }
            inside.remove();
        }
        if (rest != null) {
            mappings.put(restStart, rest);
        }
    }

    private void split(int start, int at) {
        Mapping whole = mappings.get(start);
        if (whole.shared != null) {
            whole.shared.retain();
        }
        mappings.put(start, new Mapping(at, whole.shared, whole.offset));
        mappings.put(at, new Mapping(whole.end, whole.shared, whole.offset + at - start));
    }

    /** Moves or resizes a mapping. */
    synchronized int remap(GuestThread t, int start, int oldLength, int newLength, boolean mayMove)
            throws IOException {
        if (newLength <= oldLength) {
            unmap(t, start + newLength, oldLength - newLength);
            return start;
        }
        Map.Entry<Integer, Mapping> own = mappings.floorEntry(start);
        if (own == null || own.getValue().end < start + oldLength || own.getValue().shared != null) {
            throw new Errno(Errno.EFAULT);
        }
        int end = start + oldLength;
        Integer next = mappings.ceilingKey(end);
        boolean free = own.getValue().end == end
                && start <= Integer.MAX_VALUE - newLength
                && (next == null || next >= start + newLength);
        if (free && guest.ensure(t, start + newLength)) {
            mappings.put(own.getKey(), new Mapping(start + newLength, null, 0));
            Arrays.fill(t.memory, end, start + newLength, (byte) 0);
            return start;
        }
        if (!mayMove) {
            throw new Errno(Errno.ENOMEM);
        }
        int target = map(t, newLength);
        System.arraycopy(t.memory, start, t.memory, target, oldLength);
        unmap(t, start, oldLength);
        return target;
    }

    /** Writes shared file mappings back, within a range. */
    synchronized void sync(GuestThread t, int start, int end) throws IOException {
        for (Map.Entry<Integer, Mapping> entry : mappings.entrySet()) {
            if (entry.getKey() < end && entry.getValue().end > start) {
                writeBack(t, entry.getKey(), entry.getValue().end, entry.getValue());
            }
        }
    }

    private static void writeBack(GuestThread t, int start, int end, Mapping mapping)
            throws IOException {
        if (mapping.shared == null) {
            return;
        }
        long size = mapping.shared.attributes().size;
        int length = (int) Math.min(end - start, Math.max(0, size - mapping.offset));
        if (length > 0) {
            mapping.shared.writeAt(t.memory, start, length, mapping.offset);
        }
    }
}
