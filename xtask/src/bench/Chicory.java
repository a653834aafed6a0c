import com.dylibso.chicory.compiler.MachineFactoryCompiler;
import com.dylibso.chicory.runtime.ByteArrayMemory;
import com.dylibso.chicory.runtime.ImportValues;
import com.dylibso.chicory.runtime.Instance;
import com.dylibso.chicory.wasi.WasiExitException;
import com.dylibso.chicory.wasi.WasiOptions;
import com.dylibso.chicory.wasi.WasiPreview1;
import com.dylibso.chicory.wasm.Parser;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Runs a WebAssembly program, compiled to Java bytecode once, whenever a line comes in; answers as
 * {@code Warm} does.
 */
public final class Chicory {
    public static void main(String[] arguments) throws Exception {
        var machine = (com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean();
        List<String> own = new ArrayList<>(Arrays.asList(arguments));
        own.set(0, "a.out");
        var module = Parser.parse(new File(arguments[0]));
        var factory = MachineFactoryCompiler.compile(module);
        var in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream answers = System.out;
        while (in.readLine() != null) {
            long before = machine.getProcessCpuTime();
            var out = new ByteArrayOutputStream();
            var options = WasiOptions.builder().withStdout(out).withArguments(own)
                    .withDirectory("/", Path.of("").toAbsolutePath()).build();
            try (var wasi = WasiPreview1.builder().withOptions(options).build()) {
                var imports = ImportValues.builder().addFunction(wasi.toHostFunctions()).build();
                Instance.builder(module).withMachineFactory(factory)
                        .withMemoryFactory(ByteArrayMemory::new).withImportValues(imports).build();
            } catch (WasiExitException e) {
                if (e.exitCode() != 0) {
                    throw e;
                }
            }
            answers.print(machine.getProcessCpuTime() - before + "\t" + out.size() + "\n");
            out.writeTo(answers);
            answers.flush();
        }
    }
}
