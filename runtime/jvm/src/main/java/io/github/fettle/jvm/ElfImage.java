package io.github.fettle.jvm;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A static MIPS or RISC-V executable: what its program headers say and the bytes that they load.
 *
 * <p>A translated jar carries the original file without its sections, so that the interpreter and
 * the translated code start from the same thing.
 */
final class ElfImage {
    private static final int TYPE_EXECUTABLE = 2;
    private static final int MACHINE_MIPS = 8;
    private static final int MACHINE_RISC_V = 243;
    private static final int SEGMENT_LOAD = 1;
    private static final int SEGMENT_INTERPRETER = 3;
    private static final int SEGMENT_HEADERS = 6;

    /** By what the header's flags say of the calling convention: none, single, double, quadruple. */
    private static final int[] FLOAT_SIZES = {0, 4, 8, 8};

    final boolean bigEndian;

    /** Whether the program has no kernel, and is loaded by the addresses of its copy in flash memory. */
    final boolean isBare;

    /** The size of floating-point numbers that are arguments in registers of their own, of RISC-V. */
    final int floatSize;

    /** What is taken from addresses: 0, or 2 GB where all memory lies from there on. */
    final int base;

    final int entry;
    final int headerCount;

    /** Where the program headers are in memory, or 0. */
    final int headerAddress;

    /** The first and one past the last address that a segment fills. */
    final int start;

    final int end;

    private final ByteBuffer file;
    private final int headerOffset;

    static ElfImage read(InputStream in) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] buffer = new byte[1 << 16];
        for (int count; (count = in.read(buffer)) > 0; ) {
            bytes.write(buffer, 0, count);
        }
        return new ElfImage(bytes.toByteArray());
    }

    ElfImage(byte[] bytes) {
        file = ByteBuffer.wrap(bytes);
        if (bytes.length < 52 || file.getInt(0) != 0x7f454c46) {
            throw new IllegalArgumentException("not an ELF file");
        }
        if (bytes[4] != 1) {
            throw new IllegalArgumentException("a 64-bit ELF file; only 32-bit MIPS (o32) works");
        }
        bigEndian = bytes[5] == 2;
        file.order(bigEndian ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN);
        isBare = file.getShort(18) == MACHINE_RISC_V;
        if (!isBare && file.getShort(18) != MACHINE_MIPS) {
            throw new IllegalArgumentException(
                    "an ELF file for machine " + file.getShort(18) + ", not MIPS or RISC-V");
        }
        if (file.getShort(16) != TYPE_EXECUTABLE) {
            throw new IllegalArgumentException("not a static executable: link with -static -no-pie");
        }
        entry = file.getInt(24);
        headerOffset = file.getInt(28);
        headerCount = file.getShort(44);
        if (headerOffset < 0
                || headerCount < 0
                || (long) headerOffset + headerCount * 32L > bytes.length) {
            throw new IllegalArgumentException("program headers reach past the end of the file");
        }
        floatSize = FLOAT_SIZES[file.getInt(36) >> 1 & 3];
        base = isBare ? lowestBit() : 0;
        int low = Integer.MAX_VALUE;
        int high = 0;
        int headers = 0;
        for (int i = 0; i < headerCount; i++) {
            int at = headerOffset + i * 32;
            int address = address(at);
            switch (file.getInt(at)) {
                case SEGMENT_INTERPRETER:
                    throw new IllegalArgumentException("dynamically linked: link with -static");
                case SEGMENT_HEADERS:
                    headers = address;
                    break;
                case SEGMENT_LOAD:
                    if (!isLoaded(at)) {
                        break;
                    }
                    check(i, at);
                    low = Math.min(low, address);
                    high = Math.max(high, address + file.getInt(at + 20));
                    if (headers == 0 && file.getInt(at + 4) == 0) {
                        headers = address + headerOffset;
                    }
                    break;
                default:
            }
        }
        if (high == 0) {
            throw new IllegalArgumentException("no segment to load");
        }
        start = low;
        end = high;
        headerAddress = headers;
    }

    /** Whether a segment has any memory: linkers leave empty ones at address 0. */
    private boolean isLoaded(int at) {
        return file.getInt(at) == SEGMENT_LOAD && file.getInt(at + 20) != 0;
    }

    /** The highest bit of the addresses, if all segments have it. */
    private int lowestBit() {
        int bit = Integer.MIN_VALUE;
        for (int at = headerOffset; at < headerOffset + headerCount * 32; at += 32) {
            if (isLoaded(at)) {
                bit &= file.getInt(at + 8);
            }
        }
        return bit;
    }

    /** Where a segment is in memory when the program starts. */
    private int address(int at) {
        return file.getInt(at + (isBare ? 12 : 8)) ^ base;
    }

    private void check(int index, int at) {
        int offset = file.getInt(at + 4);
        int address = address(at);
        int fileSize = file.getInt(at + 16);
        int memorySize = file.getInt(at + 20);
        if (offset < 0
                || address < 0
                || fileSize < 0
                || memorySize < fileSize
                || address > Integer.MAX_VALUE - memorySize
                || offset > file.capacity() - fileSize) {
            throw new IllegalArgumentException(
                    "segment " + index + " does not fit the file or the address space");
        }
    }

    /** Copies every segment to its address. */
    void load(byte[] memory) {
        for (int i = 0; i < headerCount; i++) {
            int at = headerOffset + i * 32;
            if (isLoaded(at)) {
                int size = file.getInt(at + 16);
                System.arraycopy(
                        file.array(), file.getInt(at + 4), memory, address(at), size);
            }
        }
    }
}
