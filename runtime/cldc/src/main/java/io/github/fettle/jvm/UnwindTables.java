package io.github.fettle.jvm;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;

/** Which code of a translated program handles exceptions. */
final class UnwindTables {
    private final Region[] regions;

    private UnwindTables(Region[] regions) {
        this.regions = regions;
    }

    /** Reads what the translator left beside the classes: nothing where no code handles exceptions. */
    static UnwindTables of(GuestCode code) {
        InputStream resource = code.getClass().getResourceAsStream("unwind.bin");
        if (resource == null) {
            return new UnwindTables(new Region[0]);
        }
        try {
            DataInputStream in = new DataInputStream(resource);
            Region[] regions = new Region[in.readInt()];
            for (int i = 0; i < regions.length; i++) {
                regions[i] = new Region(in.readInt(), in.readInt(), in.readInt(), in.readInt());
            }
            return new UnwindTables(regions);
        } catch (IOException e) {
            throw new Error("the jar's unwind.bin is damaged");
        }
    }

    /** The region that an address is in, or null. */
    Region region(int address) {
        for (int i = 0; i < regions.length; i++) {
            if (address >= regions[i].start && address < regions[i].end) {
                return regions[i];
            }
        }
        return null;
    }
}
