package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;

/** Debian's cross compilers and qemu's user mode, which the tests compare with. */
final class CrossCompiler {
    static final Path SOURCES = Path.of("src/test/c");

    private CrossCompiler() {}

    static String prefix(boolean bigEndian) {
        return bigEndian ? "mips" : "mipsel";
    }

    /** Skips the test where a tool is missing. */
    static void require(String... tools) {
        for (String tool : tools) {
            boolean found = false;
            for (String directory : System.getenv("PATH").split(":")) {
                found |= Files.isExecutable(Path.of(directory, tool));
            }
            Assumptions.assumeTrue(found, tool + " is missing");
        }
    }

    static Path compile(String source, boolean bigEndian, Path to, String... flags)
            throws IOException, InterruptedException {
        String compiler =
                prefix(bigEndian) + "-linux-gnu-" + (source.endsWith(".cpp") ? "g++" : "gcc");
        require(compiler);
        Path binary = to.resolve(source.substring(0, source.indexOf('.')));
        List<String> command = new ArrayList<>(
                List.of(compiler, "-O1", "-static", "-pthread", "-D_FILE_OFFSET_BITS=64"));
        command.addAll(List.of(flags));
        command.addAll(List.of("-o", binary.toString(), SOURCES.resolve(source).toString()));
        Process process = new ProcessBuilder(command).inheritIO().start();
        if (process.waitFor() != 0) {
            throw new IOException(compiler + " failed on " + source);
        }
        return binary;
    }

    /** What a program prints to a file, and its exit status. */
    static int run(List<String> command, Path directory, Path output)
            throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.directory(directory.toFile());
        builder.environment().put("TESTVAR", "x");
        builder.redirectInput(Path.of("/dev/null").toFile());
        builder.redirectOutput(output.toFile());
        builder.redirectError(ProcessBuilder.Redirect.DISCARD);
        Process process = builder.start();
        if (!process.waitFor(30, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new IOException(command + " did not end");
        }
        return process.exitValue();
    }
}
