import io.github.fettle.jvm.Guest;
import io.github.fettle.jvm.GuestCode;
import io.github.fettle.jvm.Options;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * Runs one program again and again in one JVM, whenever a line comes in, and answers each with "CPU
 * time of the whole process in nanoseconds, tab, number of bytes" and what the program wrote.
 *
 * <p>The first argument is the class of a plain Java program, or a dash for a translated one.
 */
public final class Warm {
    public static void main(String[] arguments) throws Exception {
        var machine = (com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean();
        String[] own = Arrays.copyOfRange(arguments, 1, arguments.length);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream answers = System.out;
        while (in.readLine() != null) {
            long before = machine.getProcessCpuTime();
            byte[] bytes = arguments[0].equals("-") ? guest(own) : plain(arguments[0], own);
            answers.print(machine.getProcessCpuTime() - before + "\t" + bytes.length + "\n");
            answers.write(bytes);
            answers.flush();
        }
    }

    private static byte[] plain(String name, String[] arguments) throws Exception {
        Method run = Class.forName(name).getMethod("run", String[].class);
        return ((String) run.invoke(null, (Object) arguments)).getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] guest(String[] arguments) throws Exception {
        Class<?> program = Class.forName("fettle.program.Program");
        GuestCode code = (GuestCode) program.getDeclaredConstructor().newInstance();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        Options options = Options.none().name("a.out").arguments(arguments).output(out)
                .readOnly(Path.of("")).memory(512 << 20);
        try (InputStream image = program.getResourceAsStream("image.elf");
                Guest guest = Guest.open(code, image, options)) {
            int status = guest.run();
            if (status != 0) {
                throw new IllegalStateException("status " + status);
            }
        }
        return out.toByteArray();
    }
}
