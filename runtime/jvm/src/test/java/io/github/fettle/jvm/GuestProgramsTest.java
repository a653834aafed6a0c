package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** C and C++ programs, interpreted over our kernel, print and return what they do under qemu. */
final class GuestProgramsTest {
    private static final String[] PROGRAMS = {
        "descriptors.c", "exceptions.cpp", "files.c", "jumps.c", "process.c", "signals.c",
        "terminate.cpp", "threads.cpp",
    };

    @TempDir Path directory;

    @TestFactory
    List<DynamicTest> sameAsQemu() {
        List<DynamicTest> tests = new ArrayList<>();
        for (boolean bigEndian : new boolean[] {false, true}) {
            for (String program : PROGRAMS) {
                String name = program + " on " + CrossCompiler.prefix(bigEndian);
                tests.add(DynamicTest.dynamicTest(name, () -> compare(program, bigEndian)));
            }
        }
        return tests;
    }

    private void compare(String program, boolean bigEndian) throws Exception {
        String qemu = "qemu-" + CrossCompiler.prefix(bigEndian) + "-static";
        CrossCompiler.require(qemu);
        Path own = Files.createTempDirectory(directory, "run");
        Path binary = CrossCompiler.compile(program, bigEndian, own);
        Path output = own.resolve("output");
        List<String> command = List.of(qemu, binary.toString(), "a1", "b c");
        int status = CrossCompiler.run(command, Files.createDirectory(own.resolve("q")), output);

        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        int ours = interpret(
                binary,
                Options.none()
                        .readWrite(Files.createDirectory(own.resolve("j")))
                        .network(true)
                        .output(printed)
                        .arguments("a1", "b c")
                        .environment(Map.of("TESTVAR", "x")));
        assertEquals(Files.readString(output), printed.toString(StandardCharsets.UTF_8));
        assertEquals(status, ours);
    }

    private static int interpret(Path binary, Options options) throws IOException {
        ElfImage image = new ElfImage(Files.readAllBytes(binary));
        return Guest.open(
                        new Interpreter(image.bigEndian), image, options.name(binary.toString()))
                .run();
    }

    /** qemu's user mode has no robust mutexes. */
    @TestFactory
    List<DynamicTest> robustMutex() {
        return List.of(DynamicTest.dynamicTest("robust.c", () -> {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            Path binary = CrossCompiler.compile("robust.c", false, directory);
            assertEquals(0, interpret(binary, Options.none().output(printed)));
            assertEquals("1\n0\n0\n", printed.toString(StandardCharsets.UTF_8));
        }));
    }
}
