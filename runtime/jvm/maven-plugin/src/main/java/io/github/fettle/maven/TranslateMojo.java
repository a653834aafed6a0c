package io.github.fettle.maven;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.maven.plugin.AbstractMojo;
import org.apache.maven.plugin.MojoExecutionException;
import org.apache.maven.plugins.annotations.LifecyclePhase;
import org.apache.maven.plugins.annotations.Mojo;
import org.apache.maven.plugins.annotations.Parameter;
import org.apache.maven.project.MavenProject;

/**
 * Translates a C or C++ library into classes of the project.
 *
 * <p>Takes a static MIPS executable, or makes one of the C sources that are there.
 */
@Mojo(name = "translate", defaultPhase = LifecyclePhase.GENERATE_SOURCES, threadSafe = true)
public final class TranslateMojo extends AbstractMojo {
    /** What the translator takes without being told. */
    private static final String DEFAULT_PACKAGE = "fettle.program";

    @Parameter(defaultValue = "${project}", readonly = true, required = true)
    private MavenProject project;

    /** The executable to translate; without it, the sources are compiled to one. */
    @Parameter(property = "fettle.elfFile")
    private File elfFile;

    /** C and C++ sources, all of which go into the library. */
    @Parameter(defaultValue = "${project.basedir}/src/main/c")
    private File sourceDirectory;

    /** What the names of the cross compiler's programs begin with. */
    @Parameter(property = "fettle.cross", defaultValue = "mipsel-linux-gnu-")
    private String cross;

    /** What the compiler gets beside {@code -O2 -g} and the sources. */
    @Parameter private List<String> compilerArguments = List.of();

    /** The Java package of the translated classes. */
    @Parameter(name = "package", property = "fettle.package", defaultValue = DEFAULT_PACKAGE)
    private String packageName;

    /** The interface whose methods are the library's functions: it gets a class that opens it. */
    @Parameter(name = "interface", property = "fettle.interface")
    private String interfaceName;

    /** Functions to call from Java: the interface is then made of their prototypes (-g). */
    @Parameter private List<String> exports = List.of();

    /**
     * Exported functions that fill an array and set its length, which the method returns, as in
     * {@code compress2(dest,destLen)=compressBound(sourceLen)}.
     */
    @Parameter private List<String> outputs = List.of();

    /** The translator. */
    @Parameter(property = "fettle.binary", defaultValue = "fettle")
    private String binary;

    @Parameter(defaultValue = "${project.build.directory}/fettle", readonly = true)
    private File workDirectory;

    @Parameter(defaultValue = "${project.build.outputDirectory}", readonly = true)
    private File outputDirectory;

    @Parameter(
            defaultValue = "${project.build.directory}/generated-sources/fettle",
            readonly = true)
    private File generatedDirectory;

    // Two parameters have names that a field can't have: Maven finds these instead.

    public void setPackage(String name) {
        packageName = name;
    }

    public void setInterface(String name) {
        interfaceName = name;
    }

    @Override
    public void execute() throws MojoExecutionException {
        try {
            Path work = Files.createDirectories(workDirectory.toPath());
            Path jar = work.resolve(packageName + ".jar");
            List<String> command = new ArrayList<>(List.of(binary, "jar"));
            command.addAll(inputs());
            command.addAll(List.of("-o", jar.toString()));
            if (!packageName.equals(DEFAULT_PACKAGE)) {
                command.addAll(List.of("--package", packageName));
            }
            boolean generated = !exports.isEmpty();
            if (generated) {
                command.addAll(generate());
            }
            if (elfFile == null && !compilerArguments.isEmpty()) {
                command.add("--");
                command.addAll(compilerArguments);
            }
            Tool.run(getLog(), command);
            Unpack.classes(jar, outputDirectory.toPath());
            if (interfaceName != null && !generated) {
                Path sources = generatedDirectory.toPath();
                Opener.write(interfaceName, packageName, sources);
                project.addCompileSourceRoot(sources.toString());
            }
        } catch (IOException e) {
            throw new MojoExecutionException(e.getMessage(), e);
        }
    }

    /** What makes the translator write the interface. */
    private List<String> generate() throws MojoExecutionException {
        if (interfaceName == null) {
            throw new MojoExecutionException("exports need the name of their <interface>");
        }
        List<String> options = new ArrayList<>();
        options.addAll(List.of("--export", String.join(",", exports)));
        options.addAll(List.of("--interface", interfaceName));
        for (String output : outputs) {
            options.addAll(List.of("--out", output));
        }
        return options;
    }

    /** The executable, or the sources that the translator makes one of. */
    private List<String> inputs() throws IOException, MojoExecutionException {
        if (elfFile != null) {
            return List.of(elfFile.toString());
        }
        List<String> inputs = sources();
        if (inputs.isEmpty()) {
            throw new MojoExecutionException(
                    "no elfFile is given, and " + sourceDirectory + " has no C or C++ source");
        }
        inputs.addAll(List.of("--cross", cross));
        return inputs;
    }

    private List<String> sources() throws IOException {
        if (!sourceDirectory.isDirectory()) {
            return List.of();
        }
        try (Stream<Path> files = Files.walk(sourceDirectory.toPath())) {
            return files.map(Path::toString)
                    .filter(name -> name.matches(".*\\.(c|cc|cpp|cxx)"))
                    .sorted()
                    .collect(Collectors.toCollection(ArrayList::new));
        }
    }
}
