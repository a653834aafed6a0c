package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;

/** Runs a guest as a program. */
public final class Launcher {
    /** What a shell uses for "could not run it". */
    private static final int CANNOT_RUN = 126;

    private Launcher() {}

    /**
     * Runs a translated program to its end, and ends the JVM with its status.
     *
     * @param image the ELF file that it was translated from
     */
    public static void run(GuestCode code, InputStream image, String[] arguments) {
        System.exit(status(code, image, arguments));
    }

    private static int status(GuestCode code, InputStream image, String[] arguments) {
        try {
            if (image == null) {
                throw new IOException("the jar has no image of the program");
            }
            Options options = Options.program(List.of(arguments));
            return run(code, ElfImage.read(image), options);
        } catch (IOException | IllegalArgumentException e) {
            System.err.println("fettle: " + e.getMessage());
            return CANNOT_RUN;
        } catch (OutOfMemoryError e) {
            System.err.println("fettle: the Java heap is too small for the program: try java -Xmx");
            return CANNOT_RUN;
        }
    }

    static int run(GuestCode code, ElfImage image, Options options) throws IOException {
        Guest guest = Guest.open(code, image, options);
        int status = guest.run();
        String left = guest.vfs.leftInMemory();
        if (left != null) {
            System.err.println(
                    "fettle: " + left + " was in memory only and is gone: FETTLE_JAR_FS=host"
                            + " gives the program all files");
        }
        if (options.trace) {
            Kernel.MISSING.forEach((number, count) ->
                    System.err.println(
                            "fettle: system call " + number + " is missing, called " + count
                                    + " times"));
        }
        return status;
    }
}
