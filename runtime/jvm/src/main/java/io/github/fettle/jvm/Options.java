package io.github.fettle.jvm;

import java.io.FileDescriptor;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What a guest is granted: nothing but its memory, unless said otherwise. */
public final class Options {
    private static final long MEGABYTE = 1 << 20;

    String name = "guest";
    List<String> arguments = List.of();
    Map<String, String> environment = Map.of();
    Grant grant = Grant.none();
    boolean network;
    int memoryLimit = defaultLimit();
    int stackSize;
    boolean trace;
    long fuel = Long.MAX_VALUE;

    /** Classes whose public static methods the guest may call. */
    List<Class<?>> imports = List.of();

    /** Streams to use for descriptors 0 to 2 in place of the process's own; null for those. */
    InputStream input;

    OutputStream output;
    OutputStream error;

    /** Whether the descriptors 0 to 2 are the process's own. */
    boolean console;

    private Options() {}

    /** For a library: no files, no network, no console. */
    public static Options none() {
        return new Options();
    }

    /**
     * For a program: the console, the environment, and files as its user set them.
     *
     * <p>Each setting is a system property ({@code fettle.jar.fs}) or an environment variable
     * ({@code FETTLE_JAR_FS}); the property wins.
     */
    public static Options program(List<String> arguments) {
        Options options = new Options();
        options.console = true;
        options.arguments = List.copyOf(arguments);
        options.environment = new LinkedHashMap<>(System.getenv());
        options.name = setting("argv0", jarName());
        options.grant = Grant.parse(setting("fs", "cwd"));
        options.network = network(setting("net", "host"));
        options.memoryLimit = bytes("memory", setting("memory", null), defaultLimit());
        options.stackSize = bytes("stack", setting("stack", null), 0);
        options.trace = !setting("strace", "0").equals("0");
        return options;
    }

    /** The name of the jar that {@code java -jar} was given, without its ending. */
    private static String jarName() {
        String path = System.getProperty("java.class.path", "");
        if (!path.endsWith(".jar") || path.contains(java.io.File.pathSeparator)) {
            return "a.out";
        }
        String file = Paths.get(path).getFileName().toString();
        return file.substring(0, file.length() - ".jar".length());
    }

    /** The program's own name, {@code argv[0]}. */
    public Options name(String name) {
        this.name = name;
        return this;
    }

    public Options arguments(String... arguments) {
        this.arguments = List.of(arguments);
        return this;
    }

    public Options environment(Map<String, String> environment) {
        this.environment = Map.copyOf(environment);
        return this;
    }

    /** Grants one directory, which the guest sees as its root. */
    public Options readOnly(Path directory) {
        grant = Grant.readOnly(directory);
        return this;
    }

    /** Grants one directory, which the guest sees as its root and may change. */
    public Options readWrite(Path directory) {
        grant = Grant.readWrite(directory);
        return this;
    }

    /** Grants every file that this process may use. */
    public Options hostFiles() {
        grant = Grant.host();
        return this;
    }

    /** Grants sockets. */
    public Options network(boolean allowed) {
        network = allowed;
        return this;
    }

    /** The most memory in bytes that the guest may have. */
    public Options memory(long limit) {
        memoryLimit = (int) Math.min(Math.max(limit, 8 * MEGABYTE), Guest.MAX_MEMORY);
        return this;
    }

    /** Bytes for the first thread's stack; 0 for what fits below the program. */
    public Options stack(int size) {
        stackSize = size;
        return this;
    }

    /** Passes descriptors 0, 1 and 2 of this process through. */
    public Options console() {
        console = true;
        return this;
    }

    public Options input(InputStream stream) {
        input = stream;
        return this;
    }

    public Options output(OutputStream stream) {
        output = stream;
        return this;
    }

    public Options error(OutputStream stream) {
        error = stream;
        return this;
    }

    /** Grants the public static methods of classes to {@code FETTLE_IMPORT}. */
    public Options imports(Class<?>... classes) {
        imports = List.of(classes);
        return this;
    }

    /** How many polls and system calls the guest may make before it is ended. */
    public Options fuel(long fuel) {
        this.fuel = fuel;
        return this;
    }

    /** Prints each system call to the process's standard error. */
    public Options trace(boolean on) {
        trace = on;
        return this;
    }

    static FileDescriptor standard(int descriptor) {
        switch (descriptor) {
            case 0:
                return FileDescriptor.in;
            case 1:
                return FileDescriptor.out;
            default:
                return FileDescriptor.err;
        }
    }

    /** Half of the heap at most: growing copies. */
    private static int defaultLimit() {
        long heap = Runtime.getRuntime().maxMemory() / 2;
        return (int) Math.max(16 * MEGABYTE, Math.min(1024 * MEGABYTE, heap));
    }

    private static String setting(String key, String otherwise) {
        String property = System.getProperty("fettle.jar." + key);
        if (property != null) {
            return property;
        }
        String variable = System.getenv("FETTLE_JAR_" + key.toUpperCase(Locale.ROOT));
        return variable != null ? variable : otherwise;
    }

    private static boolean network(String text) {
        if (text.equals("host")) {
            return true;
        } else if (text.equals("none")) {
            return false;
        }
        throw new IllegalArgumentException("net is \"" + text + "\": write none or host");
    }

    static int bytes(String key, String text, int otherwise) {
        if (text == null) {
            return otherwise;
        }
        String lower = text.toLowerCase(Locale.ROOT);
        int shift = lower.endsWith("g") ? 30 : lower.endsWith("m") ? 20 : lower.endsWith("k") ? 10 : 0;
        String digits = shift == 0 ? lower : lower.substring(0, lower.length() - 1);
        try {
            long value = Math.multiplyExact(Long.parseLong(digits), 1L << shift);
            return (int) Math.min(value, Guest.MAX_MEMORY);
        } catch (NumberFormatException | ArithmeticException e) {
            throw new IllegalArgumentException(
                    key + " is \"" + text + "\": write a number of bytes, or one with k, m or g");
        }
    }
}
