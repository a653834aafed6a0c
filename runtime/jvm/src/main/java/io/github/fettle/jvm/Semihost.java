package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * Calls of a debugger, by which programs without a kernel reach files and end. The operations and their
 * numbers are those of Arm's "Semihosting for AArch32 and AArch64".
 */
final class Semihost {
    private static final int OPEN = 1;
    private static final int CLOSE = 2;
    private static final int WRITE_CHARACTER = 3;
    private static final int WRITE_TEXT = 4;
    private static final int WRITE = 5;
    private static final int READ = 6;
    private static final int READ_CHARACTER = 7;
    private static final int IS_ERROR = 8;
    private static final int IS_TERMINAL = 9;
    private static final int SEEK = 0xa;
    private static final int LENGTH = 0xc;
    private static final int REMOVE = 0xe;
    private static final int RENAME = 0xf;
    private static final int CLOCK = 0x10;
    private static final int TIME = 0x11;
    private static final int ERROR = 0x13;
    private static final int COMMAND_LINE = 0x15;
    private static final int EXIT = 0x18;
    private static final int EXIT_EXTENDED = 0x20;
    private static final int ELAPSED = 0x30;
    private static final int TICK_FREQUENCY = 0x31;

    /** The reason of an end that the program wanted. */
    private static final int WANTED = 0x20026;

    /** The name of the console, as which file is said by the mode. */
    private static final String CONSOLE = ":tt";

    private static final int SET = 0;
    private static final int CURRENT = 1;
    private static final int END = 2;

    /** A file that says which later operations there are: how a program ends with a status, and errors. */
    private static final String FEATURES = ":semihosting-features";

    private static final byte[] FEATURES_CONTENT = {'S', 'H', 'F', 'B', 3};
    private static final int FEATURES_FILE = 0x7fff0000;

    /** What is remembered from call to call. */
    static final class State {
        /** The error of the last call that failed. */
        int error;

        /** How far the file of features was read. */
        int position;
    }

    private Semihost() {}

    /** Does what is asked; the result is what register {@code a0} gets. */
    static int call(GuestThread t, int operation, int parameters) {
        try {
            return dispatch(t, operation, parameters);
        } catch (IOException e) {
            t.guest.semihost.error = Errno.of(e);
            return operation == WRITE || operation == READ ? word(t, parameters, 2) : -1;
        }
    }

    /** A word of the parameters. */
    private static int word(GuestThread t, int parameters, int index) {
        return t.load(at(t, parameters) + index * 4);
    }

    /** Where in the array an address is. */
    private static int at(GuestThread t, int address) {
        return t.guest.index(address);
    }

    private static int dispatch(GuestThread t, int operation, int parameters) throws IOException {
        switch (operation) {
            case OPEN:
                return open(t, parameters);
            case CLOSE:
                if (word(t, parameters, 0) != FEATURES_FILE) {
                    t.guest.files.close(word(t, parameters, 0));
                }
                return 0;
            case WRITE_CHARACTER:
                FileCalls.write(t, 1, at(t, parameters), 1);
                return 0;
            case WRITE_TEXT:
                int end = at(t, parameters);
                while (t.memory[end] != 0) {
                    end++;
                }
                FileCalls.write(t, 1, at(t, parameters), end - at(t, parameters));
                return 0;
            case WRITE:
                return word(t, parameters, 2)
                        - FileCalls.write(
                                t,
                                word(t, parameters, 0),
                                at(t, word(t, parameters, 1)),
                                word(t, parameters, 2));
            case READ:
                if (word(t, parameters, 0) == FEATURES_FILE) {
                    return readFeatures(t, parameters);
                }
                return word(t, parameters, 2)
                        - FileCalls.read(
                                t,
                                word(t, parameters, 0),
                                at(t, word(t, parameters, 1)),
                                word(t, parameters, 2));
            case READ_CHARACTER:
                return readCharacter(t);
            case IS_ERROR:
                return word(t, parameters, 0) < 0 ? 1 : 0;
            case IS_TERMINAL:
                return word(t, parameters, 0) <= 2 ? 1 : 0;
            case SEEK:
                if (word(t, parameters, 0) == FEATURES_FILE) {
                    t.guest.semihost.position = word(t, parameters, 1);
                    return 0;
                }
                FileCalls.seek(t, word(t, parameters, 0), word(t, parameters, 1), SET);
                return 0;
            case LENGTH:
                if (word(t, parameters, 0) == FEATURES_FILE) {
                    return FEATURES_CONTENT.length;
                }
                return length(t, word(t, parameters, 0));
            default:
                return rest(t, operation, parameters);
        }
    }

    private static int rest(GuestThread t, int operation, int parameters) throws IOException {
        int directory = PathCalls.AT_FDCWD;
        switch (operation) {
            case REMOVE:
                return PathCalls.unlink(t, directory, at(t, word(t, parameters, 0)), 0);
            case RENAME:
                int from = at(t, word(t, parameters, 0));
                int to = at(t, word(t, parameters, 2));
                return PathCalls.rename(t, directory, from, directory, to, 0);
            case CLOCK:
                return (int) (t.guest.clock.processCpu() / (Clock.SECOND / 100));
            case TIME:
                return (int) (t.guest.clock.realtime() / Clock.SECOND);
            case ERROR:
                return t.guest.semihost.error;
            case COMMAND_LINE:
                return commandLine(t, parameters);
            case EXIT:
                return ThreadCalls.exitGroup(t, parameters == WANTED ? 0 : 1);
            case EXIT_EXTENDED:
                boolean wanted = word(t, parameters, 0) == WANTED;
                return ThreadCalls.exitGroup(t, wanted ? word(t, parameters, 1) & 255 : 1);
            case ELAPSED:
                t.storeLong(at(t, parameters), t.guest.clock.monotonic());
                return 0;
            case TICK_FREQUENCY:
                return (int) Clock.SECOND;
            default:
                throw new Errno(Errno.ENOSYS);
        }
    }

    private static int open(GuestThread t, int parameters) throws IOException {
        int name = at(t, word(t, parameters, 0));
        int mode = word(t, parameters, 1);
        byte[] bytes = new byte[word(t, parameters, 2)];
        System.arraycopy(t.memory, name, bytes, 0, bytes.length);
        String text = new String(bytes, StandardCharsets.UTF_8);
        if (text.equals(CONSOLE)) {
            return mode < 4 ? 0 : mode < 8 ? 1 : 2;
        } else if (text.equals(FEATURES)) {
            t.guest.semihost.position = 0;
            return FEATURES_FILE;
        }
        // As of fopen: r, w, a, each with b, + or both.
        int access = (mode & 2) != 0 ? Flags.O_RDWR : mode < 4 ? 0 : Flags.O_WRONLY;
        int create = mode < 4 ? 0 : Flags.O_CREAT | (mode < 8 ? Flags.O_TRUNC : Flags.O_APPEND);
        return PathCalls.open(t, PathCalls.AT_FDCWD, name, access | create, 0666);
    }

    private static int readFeatures(GuestThread t, int parameters) {
        int to = at(t, word(t, parameters, 1));
        int wanted = word(t, parameters, 2);
        int from = Math.min(Math.max(0, t.guest.semihost.position), FEATURES_CONTENT.length);
        int count = Math.max(0, Math.min(wanted, FEATURES_CONTENT.length - from));
        System.arraycopy(FEATURES_CONTENT, from, t.memory, to, count);
        t.guest.semihost.position = from + count;
        return wanted - count;
    }

    private static int readCharacter(GuestThread t) throws IOException {
        // Memory has a spare word behind all that the program uses.
        int scratch = t.memory.length - 1;
        return FileCalls.read(t, 0, scratch, 1) == 1 ? t.memory[scratch] & 255 : -1;
    }

    private static int length(GuestThread t, int file) throws IOException {
        int position = FileCalls.seek(t, file, 0, CURRENT);
        int length = FileCalls.seek(t, file, 0, END);
        FileCalls.seek(t, file, position, SET);
        return length;
    }

    private static int commandLine(GuestThread t, int parameters) throws IOException {
        StringBuilder line = new StringBuilder(t.guest.options.name);
        for (String argument : t.guest.options.arguments) {
            line.append(' ').append(argument);
        }
        byte[] bytes = line.toString().getBytes(StandardCharsets.UTF_8);
        if (bytes.length >= word(t, parameters, 1)) {
            throw new Errno(Errno.EINVAL);
        }
        int buffer = at(t, word(t, parameters, 0));
        System.arraycopy(bytes, 0, t.memory, buffer, bytes.length);
        t.memory[buffer + bytes.length] = 0;
        t.store(at(t, parameters) + 4, bytes.length);
        return 0;
    }
}
