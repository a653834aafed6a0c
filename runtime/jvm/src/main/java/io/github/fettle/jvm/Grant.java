package io.github.fettle.jvm;

import java.nio.file.Path;
import java.nio.file.Paths;

/** Which files a guest may see. */
final class Grant {
    /** The host directory, or null for none. */
    final Path directory;

    /** Where the guest sees it. */
    final String mount;

    final boolean writable;

    /** The guest's first working directory. */
    final String workingDirectory;

    private Grant(Path directory, String mount, boolean writable, String workingDirectory) {
        this.directory = directory;
        this.mount = mount;
        this.writable = writable;
        this.workingDirectory = workingDirectory;
    }

    static Grant none() {
        return new Grant(null, null, false, "/");
    }

    static Grant readOnly(Path directory) {
        return new Grant(directory, "/", false, "/");
    }

    static Grant readWrite(Path directory) {
        return new Grant(directory, "/", true, "/");
    }

    static Grant host() {
        return new Grant(Paths.get("/"), "/", true, here());
    }

    /** The working directory under its own name, and nothing above it. */
    static Grant workingDirectory() {
        return new Grant(Paths.get(here()), here(), true, here());
    }

    private static String here() {
        return Paths.get("").toAbsolutePath().toString();
    }

    static Grant parse(String text) {
        if (text.equals("none")) {
            return none();
        } else if (text.equals("host")) {
            return host();
        } else if (text.equals("cwd")) {
            return workingDirectory();
        } else if (text.startsWith("ro:") && text.length() > 3) {
            return readOnly(Paths.get(text.substring(3)));
        } else if (text.startsWith("rw:") && text.length() > 3) {
            return readWrite(Paths.get(text.substring(3)));
        }
        throw new IllegalArgumentException(
                "fs is \"" + text + "\": write none, cwd, ro:DIRECTORY, rw:DIRECTORY or host");
    }
}
