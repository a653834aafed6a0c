package io.github.fettle.jvm;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A little-endian ELF file of a few instructions. */
final class TinyProgram {
    static final int START = 0x400000;

    private TinyProgram() {}

    static byte[] file(int... instructions) {
        int offset = 52 + 32;
        int size = offset + instructions.length * 4;
        ByteBuffer file = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
        file.put(new byte[] {0x7f, 'E', 'L', 'F', 1, 1, 1}).position(16);
        file.putShort((short) 2).putShort((short) 8).putInt(1);
        file.putInt(START + offset).putInt(52).putInt(0).putInt(0x70001007);
        file.putShort((short) 52).putShort((short) 32).putShort((short) 1);
        file.position(52);
        file.putInt(1).putInt(0).putInt(START).putInt(START);
        file.putInt(size).putInt(size).putInt(5).putInt(0x1000);
        for (int instruction : instructions) {
            file.putInt(instruction);
        }
        return file.array();
    }
}
