import io.github.fettle.jvm.Guest;
import io.github.fettle.jvm.GuestCode;
import io.github.fettle.jvm.Options;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.net.URLConnection;
import java.nio.file.Path;

/**
 * Runs one jar after the other in one JVM, whose start would take most of the time of each.
 *
 * <p>Reads lines "seconds, tab, path of a jar" and answers each with a line "status, tab, number of
 * bytes" and the program's output; the status is "late" where the time was not enough.
 */
public final class Batch {
    /** Every jar has its program in classes of the same names, and the same runtime. */
    private static final class Loader extends URLClassLoader {
        Loader(URL jar) {
            super(new URL[] {jar}, Batch.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("fettle.program.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded != null ? loaded : findClass(name);
            }
        }
    }

    private volatile String status;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        // Jars of one path are not one jar.
        URLConnection.setDefaultUseCaches("jar", false);
        PrintStream answers = System.out;
        String line;
        while ((line = in.readLine()) != null) {
            String[] parts = line.split("\t", 2);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            String status = new Batch().run(Path.of(parts[1]), Long.parseLong(parts[0]), out);
            byte[] bytes = out.toByteArray();
            answers.print(status + "\t" + bytes.length + "\n");
            answers.write(bytes);
            answers.flush();
            if (status.equals("late")) {
                // A loop of the program cannot be stopped: the process that started this starts another.
                break;
            }
        }
        System.exit(0);
    }

    private String run(Path jar, long seconds, ByteArrayOutputStream out) throws Exception {
        Thread runner = new Thread(() -> {
            try (Loader loader = new Loader(jar.toUri().toURL());
                    InputStream image = loader.findResource("fettle/program/image.elf").openStream()) {
                Class<?> program = loader.loadClass("fettle.program.Program");
                GuestCode code = (GuestCode) program.getDeclaredConstructor().newInstance();
                Options options = Options.none().name("a.out").output(out).memory(256 << 20);
                // Where the emulator ran the program, too.
                options.readWrite(jar.toAbsolutePath().getParent());
                try (Guest guest = Guest.open(code, image, options)) {
                    status = String.valueOf(guest.run());
                }
            } catch (Throwable e) {
                StackTraceElement[] trace = e.getStackTrace();
                status = e + (trace.length == 0 ? "" : " at " + trace[0]);
                status = status.replace('\n', ' ').replace('\t', ' ');
            }
        });
        runner.setDaemon(true);
        runner.start();
        runner.join(seconds * 1000);
        return status == null ? "late" : status;
    }
}
