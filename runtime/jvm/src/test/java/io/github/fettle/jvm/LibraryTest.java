package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A C library through a Java interface. */
final class LibraryTest {
    /** What {@code library.c} offers. */
    public interface Sample {
        int sum(@In int[] numbers, int count);

        int callCount();

        int upper(byte[] text, int length);

        String greeting(String name);

        long mix(int a, long b, short c, double d, float e);

        double scale(double a, float b, int c);

        float third(float a);

        void sortDoubles(double[] values, int count);

        int each(int count, Visitor visitor, int start);

        int viaHost(int value);

        int forbidden();

        Object sameHandle(Object object);

        int crash();
    }

    /** A function pointer. */
    public interface Visitor {
        int visit(int index, double half);
    }

    /** What the library calls. */
    public static final class Host {
        private Host() {}

        public static int score(String name, int value) {
            if (value < 0) {
                throw new IllegalStateException(name);
            }
            return name.length() * value;
        }

        public static long wide(int a, long b) {
            return a + b - (1L << 33);
        }

        public static double half(double value, float other) {
            return value / 2 + other;
        }
    }

    @TempDir Path directory;

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void everyKindOfCall(boolean bigEndian) throws Exception {
        Path binary = CrossCompiler.compile("library.c", bigEndian, directory, "-Iinclude");
        ElfImage image = new ElfImage(Files.readAllBytes(binary));
        Options options = Options.none().imports(Host.class);
        Guest guest = Guest.open(new Interpreter(bigEndian), image, options);
        try (Library library = Library.start(guest)) {
            Sample sample = library.as(Sample.class);
            assertEquals(60, sample.sum(new int[] {10, 20, 30}, 3));
            assertEquals(0, sample.sum(new int[0], 0));
            assertEquals(2, sample.callCount());
            byte[] text = "grüße".getBytes(StandardCharsets.ISO_8859_1);
            assertEquals(2, sample.upper(text, 2));
            assertEquals("GR", new String(text, 0, 2, StandardCharsets.US_ASCII));
            assertEquals("hello, wörld", sample.greeting("wörld"));
            assertEquals(
                    1 + 50_000_000_000L + 3 + 7 + 9,
                    sample.mix(1, 5_000_000_000L, (short) 3, 7.9, 9.9f));
            assertEquals(7.0, sample.scale(2.0, 1.5f, 4));
            assertEquals(1.0f / 3, sample.third(1));
            double[] values = {3, -1.5, 2};
            sample.sortDoubles(values, 3);
            assertArrayEquals(new double[] {-1.5, 2, 3}, values);
            assertEquals(16, sample.each(3, (index, half) -> index + (int) (half * 2), 1));
            assertEquals(42 + 6 + 6, sample.viaHost(7));
            Object object = new Object();
            assertSame(object, sample.sameHandle(object));
            failuresAreExceptions(sample);
            assertEquals(6, sample.sum(new int[] {1, 2, 3}, 3));
        }
    }

    private static void failuresAreExceptions(Sample sample) {
        // A Java exception passes through the C function that called Java.
        assertEquals(
                "points",
                assertThrows(IllegalStateException.class, () -> sample.viaHost(-1)).getMessage());
        assertThrows(
                ArithmeticException.class, () -> sample.each(1, (index, half) -> 1 / index, 1));
        GuestException refused = assertThrows(GuestException.class, sample::forbidden);
        assertTrue(refused.getMessage().contains("java.lang.Runtime"), refused.getMessage());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false})
    void instancesAreApart(boolean bigEndian) throws Exception {
        Path binary = CrossCompiler.compile("library.c", bigEndian, directory, "-Iinclude");
        byte[] bytes = Files.readAllBytes(binary);
        Sample[] samples = new Sample[2];
        for (int i = 0; i < 2; i++) {
            ElfImage image = new ElfImage(bytes);
            Guest guest = Guest.open(new Interpreter(bigEndian), image, Options.none());
            samples[i] = Library.start(guest).as(Sample.class);
        }
        samples[0].sum(new int[] {1}, 1);
        assertEquals(1, samples[0].callCount());
        assertEquals(0, samples[1].callCount());
        // Without the grant, Java is out of reach; a fault ends the call, not the JVM.
        assertThrows(GuestException.class, () -> samples[0].viaHost(1));
        assertThrows(GuestException.class, () -> samples[1].crash());
    }

    /** An interface that asks for more than there is. */
    public interface TooMuch {
        int noSuchFunction();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false})
    void missingFunctionsAreNamed(boolean bigEndian) throws Exception {
        Path binary = CrossCompiler.compile("library.c", bigEndian, directory, "-Iinclude");
        ElfImage image = new ElfImage(Files.readAllBytes(binary));
        Guest guest = Guest.open(new Interpreter(bigEndian), image, Options.none());
        try (Library library = Library.start(guest)) {
            GuestException e =
                    assertThrows(GuestException.class, () -> library.as(TooMuch.class));
            assertTrue(e.getMessage().contains("noSuchFunction"), e.getMessage());
            assertTrue(e.getMessage().contains("sum"), e.getMessage());
        }
    }
}
