import fettle.program.Program;
import io.github.fettle.jvm.GuestException;
import io.github.fettle.jvm.Library;
import io.github.fettle.jvm.Options;
import java.util.function.Supplier;

/** Exceptions between Java and a translated C++ library, one line each. */
public final class Exceptions {
    public interface Function {
        int apply(int value);
    }

    public interface Sample {
        int fails(int n);

        int fails_oddly();

        int cleanups();

        int calls(Function function, int value);

        int catches(Function function, int value);

        int rethrows(Function function, int value);

        double average(double a, float b);

        float third(float a);
    }

    public static final class Host {
        public static int callback(int value) {
            if (value < 0) {
                throw new IllegalStateException("from the host");
            }
            return value * 2;
        }
    }

    private static void show(String what, Supplier<Object> action) {
        String result;
        try {
            result = String.valueOf(action.get());
        } catch (GuestException e) {
            boolean seen = false;
            for (StackTraceElement frame : e.getCause().getStackTrace()) {
                seen |= frame.getMethodName().startsWith("fails");
            }
            result = e.cppType() + ", " + e.what() + ", thrown in a function of C: " + seen;
        } catch (RuntimeException e) {
            result = e.toString();
        }
        System.out.println(what + ": " + result);
    }

    public static void main(String[] arguments) throws Exception {
        Options options = Options.none().imports(Host.class);
        try (Library library = Library.open(
                new Program(), Program.class.getResourceAsStream("image.elf"), options)) {
            Sample s = library.as(Sample.class);
            show("type and text", () -> s.fails(3));
            show("cleaned up", s::cleanups);
            show("no class", s::fails_oddly);
            show("a callback", () -> s.calls(n -> n + 10, 5));
            Function throwing = n -> {
                throw new ArrayIndexOutOfBoundsException("index " + n);
            };
            show("Java's through C++", () -> s.calls(throwing, 5));
            show("from the host", () -> s.calls(null, -1));
            show("not from the host", () -> s.calls(null, 4));
            show("cleaned up", s::cleanups);
            show("Java's caught in C++", () -> s.catches(throwing, 5));
            show("Java's thrown again", () -> s.rethrows(throwing, 6));
            show("C++'s through Java", () -> s.catches(n -> s.fails(n), 2));
            show("C++'s through Java and out", () -> s.calls(n -> s.fails(n), 2));
            show("cleaned up", s::cleanups);
            for (int i = 0; i < 40; i++) {
                s.catches(throwing, i);
            }
            show("after many", s::cleanups);
            show("double", () -> s.average(1.5, 2.0f));
            show("float", () -> s.third(1.5f));
        }
    }
}
