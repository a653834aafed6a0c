import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import org.graalvm.polyglot.Context;
import org.graalvm.polyglot.Engine;
import org.graalvm.polyglot.PolyglotException;
import org.graalvm.polyglot.Source;
import org.graalvm.polyglot.Value;
import org.graalvm.polyglot.io.IOAccess;

/**
 * Runs a WebAssembly program by GraalWasm whenever a line comes in, each time with a memory of its own
 * and the same compiled code; answers as {@code Warm} does.
 */
public final class GraalWasm {
    public static void main(String[] arguments) throws Exception {
        var machine = (com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean();
        String[] own = arguments.clone();
        own[0] = "a.out";
        Source source = Source.newBuilder("wasm", new File(arguments[0])).build();
        Engine engine = Engine.create("wasm");
        var in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream answers = System.out;
        while (in.readLine() != null) {
            long before = machine.getProcessCpuTime();
            var out = new ByteArrayOutputStream();
            try (Context context = Context.newBuilder("wasm").engine(engine).out(out)
                    .option("wasm.Builtins", "wasi_snapshot_preview1")
                    .option("wasm.WasiMapDirs", ".")
                    .allowIO(IOAccess.ALL).arguments("wasm", own).build()) {
                Value instance = context.eval(source).newInstance();
                instance.getMember("exports").getMember("_start").execute();
            } catch (PolyglotException e) {
                if (!e.isExit() || e.getExitStatus() != 0) {
                    throw e;
                }
            }
            answers.print(machine.getProcessCpuTime() - before + "\t" + out.size() + "\n");
            out.writeTo(answers);
            answers.flush();
        }
    }
}
