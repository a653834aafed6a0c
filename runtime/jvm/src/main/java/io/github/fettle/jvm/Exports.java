package io.github.fettle.jvm;

import java.util.LinkedHashMap;
import java.util.Map;

/** The functions that a library's {@code main} handed to the runtime. */
final class Exports {
    /** The system call that does it. */
    static final int CALL = 5500;

    private static final int RECORD = 8;

    private final Map<String, Integer> functions = new LinkedHashMap<>();

    /** Reads the table: a name and an address each. */
    void read(GuestThread t, int start, int end) {
        for (int at = start; at < end; at += RECORD) {
            functions.put(GuestException.text(t, t.load(at)), t.load(at + 4));
        }
    }

    /** Adds what the translator exported: {@code name=address} each. */
    void add(String names) {
        for (String name : names.split(" ")) {
            int equals = name.indexOf('=');
            if (equals > 0) {
                int address = Integer.parseUnsignedInt(name.substring(equals + 1), 16);
                functions.put(name.substring(0, equals), address);
            }
        }
    }

    boolean has(String name) {
        return functions.containsKey(name);
    }

    int address(String name) {
        Integer address = functions.get(name);
        if (address == null) {
            String known = functions.isEmpty()
                    ? "it exports nothing: does one of its files say FETTLE_LIBRARY?"
                    : "it exports " + String.join(", ", functions.keySet());
            throw new GuestException("the library exports no " + name + "; " + known, null, null);
        }
        return address;
    }
}
