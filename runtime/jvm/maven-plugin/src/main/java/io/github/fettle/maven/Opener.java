package io.github.fettle.maven;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Writes the class that opens a library under its interface. */
final class Opener {
    private Opener() {}

    static void write(String interfaceName, String translated, Path to) throws IOException {
        int dot = interfaceName.lastIndexOf('.');
        String simple = interfaceName.substring(dot + 1);
        String name = simple + "Library";
        StringBuilder text = new StringBuilder();
        Path directory = to;
        if (dot > 0) {
            String home = interfaceName.substring(0, dot);
            text.append("package ").append(home).append(";\n\n");
            directory = to.resolve(home.replace('.', '/'));
        }
        String[] lines = {
            "import io.github.fettle.jvm.Library;",
            "import io.github.fettle.jvm.Options;",
            "import java.io.IOException;",
            "import " + translated + ".Program;",
            "",
            "/** Opens " + simple + ": each instance has its own memory. */",
            "public final class " + name + " implements AutoCloseable {",
            "    private final Library library;",
            "",
            "    private " + name + "(Library library) {",
            "        this.library = library;",
            "    }",
            "",
            "    /** With no file, no network and no console. */",
            "    public static " + name + " open() throws IOException {",
            "        return open(Options.none());",
            "    }",
            "",
            "    public static " + name + " open(Options options) throws IOException {",
            "        return new " + name + "(Library.open(",
            "                new Program(), Program.class.getResourceAsStream(\"image.elf\"), options));",
            "    }",
            "",
            "    /** The library's functions. */",
            "    public " + simple + " functions() {",
            "        return library.as(" + simple + ".class);",
            "    }",
            "",
            "    /** What is not a function: memory, handles, callbacks. */",
            "    public Library library() {",
            "        return library;",
            "    }",
            "",
            "    @Override",
            "    public void close() throws IOException {",
            "        library.close();",
            "    }",
            "}",
            "",
        };
        text.append(String.join("\n", lines));
        Files.createDirectories(directory);
        Path file = directory.resolve(name + ".java");
        String now = text.toString();
        // An unchanged file keeps its time: the compiler need not run again.
        if (!Files.exists(file) || !Files.readString(file).equals(now)) {
            Files.writeString(file, now);
        }
    }
}
