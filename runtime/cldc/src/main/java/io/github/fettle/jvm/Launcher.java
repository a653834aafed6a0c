package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;

/** Runs a program where there is a command line: any Java does. */
public final class Launcher implements Console {
    /** What a shell uses for "could not run it". */
    private static final int CANNOT_RUN = 126;

    private Launcher() {}

    /** Runs a translated program to its end, and ends the JVM with its status. */
    public static void run(GuestCode code, InputStream image, String[] arguments) {
        System.exit(status(code, image, arguments));
    }

    private static int status(GuestCode code, InputStream image, String[] arguments) {
        try {
            return new Guest(code, image, new Launcher()).run(arguments);
        } catch (IOException e) {
            System.err.println("fettle: ".concat(e.getMessage()));
        } catch (OutOfMemoryError e) {
            System.err.println("fettle: the Java heap is too small for the program");
        }
        return CANNOT_RUN;
    }

    public void write(byte[] bytes, int count, boolean isError) {
        (isError ? System.err : System.out).write(bytes, 0, count);
        (isError ? System.err : System.out).flush();
    }
}
