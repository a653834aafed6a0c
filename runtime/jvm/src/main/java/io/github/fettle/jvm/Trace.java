package io.github.fettle.jvm;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Prints system calls, a line each, much as {@code strace} does. */
final class Trace {
    private final Map<Integer, String> names = new HashMap<>();

    Trace() {
        try (InputStream in = Trace.class.getResourceAsStream("syscalls.txt")) {
            if (in == null) {
                return; // numbers will do
            }
            BufferedReader reader =
                    new BufferedReader(new InputStreamReader(in, StandardCharsets.US_ASCII));
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                String[] fields = line.split(" ");
                names.put(Integer.parseInt(fields[0]), fields[1]);
            }
        } catch (IOException e) {
            // As above.
        }
    }

    void enter(GuestThread t, int number, int a0, int a1, int a2, int a3) {
        System.err.printf(
                "[%d] %s(%s, %s, %s, %s)%n",
                t.id,
                names.getOrDefault(number, String.valueOf(number)),
                argument(t, a0),
                argument(t, a1),
                argument(t, a2),
                argument(t, a3));
    }

    /** A number, with the text that it may be the address of. */
    private static String argument(GuestThread t, int value) {
        if (value > -4096 && value < 0x10000) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("0x" + Integer.toHexString(value));
        int length = 0;
        while (value > 0
                && value + length < t.memory.length
                && length < 32
                && t.memory[value + length] >= 32) {
            length++;
        }
        if (length > 1) {
            text.append(" \"")
                    .append(new String(t.memory, value, length, StandardCharsets.US_ASCII))
                    .append('"');
        }
        return text.toString();
    }

    void leave(GuestThread t, int number, int result, boolean failed) {
        String name = names.getOrDefault(number, String.valueOf(number));
        String value = failed
                ? "-1 " + Errno.name(result)
                : result > -4096 && result < 0x10000 ? "" + result : "0x" + Integer.toHexString(result);
        System.err.println("[" + t.id + "] " + name + " = " + value);
    }
}
