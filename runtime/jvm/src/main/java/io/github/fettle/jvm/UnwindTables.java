package io.github.fettle.jvm;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Map.Entry;
import java.util.TreeMap;

/**
 * Which code of a translated program handles exceptions, and where in its methods the calls are.
 *
 * <p>The translator leaves this beside the classes; it is read when the first exception is thrown.
 */
final class UnwindTables {
    private final TreeMap<Integer, Region> regions = new TreeMap<>();

    /** By class and method: first and last byte of a call in one word, and its address. */
    private final Map<String, int[]> calls = new HashMap<>();

    /** What the names of the program's classes begin with. */
    final String home;

    private UnwindTables(String home) {
        this.home = home;
    }

    /** Reads what lies beside a program's classes: nothing where no code handles exceptions. */
    static UnwindTables of(GuestCode code) {
        UnwindTables tables = new UnwindTables(packageOf(code.getClass().getName()));
        try (InputStream resource = code.getClass().getResourceAsStream("unwind.bin")) {
            if (resource != null) {
                tables.read(new DataInputStream(new BufferedInputStream(resource)));
            }
        } catch (IOException e) {
            throw new IllegalStateException("the jar's unwind.bin is damaged", e);
        }
        return tables;
    }

    private static String packageOf(String type) {
        return type.substring(0, type.lastIndexOf('.') + 1);
    }

    private void read(DataInputStream in) throws IOException {
        for (int left = in.readInt(); left > 0; left--) {
            int start = in.readInt();
            regions.put(start, new Region(start, in.readInt(), in.readInt(), in.readInt()));
        }
        for (int left = in.readInt(); left > 0; left--) {
            byte[] name = new byte[in.readInt()];
            in.readFully(name);
            String method = new String(name, StandardCharsets.UTF_8);
            int[] words = new int[in.readInt() * 2];
            for (int i = 0; i < words.length; i++) {
                words[i] = in.readInt();
            }
            calls.put(method, words);
        }
    }

    /** The region that an address is in, or null. */
    Region region(int address) {
        Entry<Integer, Region> entry = regions.floorEntry(address);
        return entry != null && address < entry.getValue().end ? entry.getValue() : null;
    }

    /** The address of the call that a method is in the middle of; 0 where no exception stops. */
    int call(String type, String method, int index) {
        int[] words = calls.get(type + "." + method);
        for (int i = 0; words != null && i < words.length; i += 2) {
            if (index >= words[i] >>> 16 && index < (words[i] & 0xffff)) {
                return words[i + 1];
            }
        }
        return 0;
    }
}
