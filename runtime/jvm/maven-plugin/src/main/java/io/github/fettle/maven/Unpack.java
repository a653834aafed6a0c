package io.github.fettle.maven;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Enumeration;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;

/** Takes files out of jars. */
final class Unpack {
    private Unpack() {}

    /** All of a translated jar but its manifest and its module: the project has its own, or none. */
    static void classes(Path jar, Path to) throws IOException {
        Path root = to.toAbsolutePath().normalize();
        try (ZipFile zip = new ZipFile(jar.toFile())) {
            for (Enumeration<? extends ZipEntry> all = zip.entries(); all.hasMoreElements(); ) {
                ZipEntry entry = all.nextElement();
                Path target = root.resolve(entry.getName()).normalize();
                if (entry.isDirectory()
                        || entry.getName().startsWith("META-INF/")
                        || entry.getName().equals("module-info.class")) {
                    continue;
                }
                if (!target.startsWith(root)) {
                    throw new IOException(jar + " has an entry outside: " + entry.getName());
                }
                Files.createDirectories(target.getParent());
                try (InputStream in = zip.getInputStream(entry)) {
                    Files.copy(in, target, StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }
}
