package io.github.fettle.jvm;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;

/** What a program has open: its three standard files, and resources of the jar, which are read. */
final class Files {
    private static final int MAX = 16;
    private static final int FIRST = 3;

    private final GuestCode code;
    private final byte[][] contents = new byte[MAX][];
    private final int[] positions = new int[MAX];

    Files(GuestCode code) {
        this.code = code;
    }

    static byte[] all(InputStream in) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        byte[] buffer = new byte[4096];
        for (int count; (count = in.read(buffer)) > 0; ) {
            out.write(buffer, 0, count);
        }
        in.close();
        return out.toByteArray();
    }

    /** Opens a resource by its path in the jar. */
    int open(String path, int flags) {
        if ((flags & 3) != 0) {
            return Kernel.READ_ONLY;
        }
        InputStream in = code.getClass().getResourceAsStream(
                path.startsWith("/") ? path : "/".concat(path));
        if (in == null) {
            return Kernel.NOT_THERE;
        }
        int file = FIRST;
        while (file < MAX && contents[file] != null) {
            file++;
        }
        if (file == MAX) {
            return Kernel.TOO_MANY;
        }
        try {
            contents[file] = all(in);
        } catch (IOException e) {
            return Kernel.INPUT_OUTPUT;
        }
        positions[file] = 0;
        return file;
    }

    private boolean isOpen(int file) {
        return file >= FIRST && file < MAX && contents[file] != null;
    }

    int close(int file) {
        if (isOpen(file)) {
            contents[file] = null;
        } else if (file < 0 || file >= FIRST) {
            return Kernel.BAD_FILE;
        }
        return 0;
    }

    int read(GuestThread t, int file, int address, int count) {
        if (file == 0) {
            return 0; // devices have no standard input: it is at its end
        }
        if (!isOpen(file)) {
            return Kernel.BAD_FILE;
        }
        int left = contents[file].length - positions[file];
        int done = Math.max(0, Math.min(count, left));
        t.write(address, contents[file], positions[file], done);
        positions[file] += done;
        return done;
    }

    int write(GuestThread t, int file, int address, int count) {
        if (file != 1 && file != 2) {
            return Kernel.BAD_FILE;
        }
        byte[] bytes = new byte[count];
        t.read(address, bytes, count);
        t.guest.console.write(bytes, count, file == 2);
        return count;
    }

    /** Sets the position; returns it. */
    int seek(int file, int offset, int whence) {
        if (!isOpen(file)) {
            return file >= 0 && file < FIRST ? Kernel.NO_SEEK : Kernel.BAD_FILE;
        }
        int base = whence == 0 ? 0 : whence == 1 ? positions[file] : contents[file].length;
        if (whence < 0 || whence > 2 || base + offset < 0) {
            return Kernel.INVALID;
        }
        positions[file] = base + offset;
        return positions[file];
    }
}
