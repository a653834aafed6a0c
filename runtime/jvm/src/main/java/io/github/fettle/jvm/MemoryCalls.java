package io.github.fettle.jvm;

import java.io.IOException;

/** System calls on the address space. */
final class MemoryCalls {
    private static final int PROT_WRITE = 2;
    private static final int MAP_SHARED = 1;
    private static final int MAP_FIXED = 0x10;
    private static final int MAP_ANONYMOUS = 0x800;
    private static final int MAP_FIXED_NOREPLACE = 0x10_0000;
    private static final int MADV_DONTNEED = 4;
    private static final int MREMAP_MAYMOVE = 1;
    private static final int MREMAP_FIXED = 2;

    private MemoryCalls() {}

    static int map(
            GuestThread t, int address, int length, int protection, int flags, int file, long offset)
            throws IOException {
        int size = MemoryMap.roundUp(length);
        if (length <= 0 || size <= 0) {
            throw new Errno(length == 0 ? Errno.EINVAL : Errno.ENOMEM);
        }
        boolean fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
        if ((address & MemoryMap.PAGE - 1) != 0 && fixed) {
            throw new Errno(Errno.EINVAL);
        }
        MemoryMap map = t.guest.map;
        if ((flags & MAP_ANONYMOUS) != 0) {
            if (!fixed) {
                return map.map(t, size);
            }
            map.mapFixed(t, address, size);
            return address;
        }
        OpenFile source = t.guest.files.get(file);
        if (!Flags.reads(source.flags)) {
            throw new Errno(Errno.EACCES);
        }
        boolean back = (flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0;
        if (back && !Flags.writes(source.flags)) {
            throw new Errno(Errno.EACCES);
        }
        return map.mapFile(t, fixed ? address : 0, size, source, offset, back);
    }

    static int unmap(GuestThread t, int address, int length) throws IOException {
        if ((address & MemoryMap.PAGE - 1) != 0 || length <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        t.guest.map.unmap(t, address, MemoryMap.roundUp(length));
        return 0;
    }

    static int remap(GuestThread t, int address, int oldLength, int newLength, int flags)
            throws IOException {
        int from = MemoryMap.roundUp(oldLength);
        int to = MemoryMap.roundUp(newLength);
        if ((address & MemoryMap.PAGE - 1) != 0 || from <= 0 || to <= 0) {
            throw new Errno(Errno.EINVAL);
        }
        if ((flags & MREMAP_FIXED) != 0) {
            throw new Errno(Errno.EINVAL);
        }
        return t.guest.map.remap(t, address, from, to, (flags & MREMAP_MAYMOVE) != 0);
    }

    /** Protections are not kept; what matters is whether the range exists. */
    static int protect(GuestThread t, int address, int length) throws Errno {
        if ((address & MemoryMap.PAGE - 1) != 0) {
            throw new Errno(Errno.EINVAL);
        }
        if (address < 0 || length < 0 || address > t.memory.length - length) {
            throw new Errno(Errno.ENOMEM);
        }
        return 0;
    }

    static int advise(GuestThread t, int address, int length, int advice) {
        if (advice == MADV_DONTNEED && address > 0 && length > 0) {
            java.util.Arrays.fill(t.memory, address, address + MemoryMap.roundUp(length), (byte) 0);
        }
        return 0;
    }

    static int sync(GuestThread t, int address, int length) throws IOException {
        t.guest.map.sync(t, address, address + length);
        return 0;
    }
}
