package io.github.fettle.jvm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Nothing outside a granted directory can be reached, by whatever name. */
final class VfsTest {
    @TempDir Path directory;
    private Path inside;

    @BeforeEach
    void prepare() throws IOException {
        inside = Files.createDirectory(directory.resolve("inside"));
        Files.writeString(directory.resolve("secret"), "secret");
        Files.writeString(inside.resolve("file"), "ours");
        Files.createDirectory(inside.resolve("sub"));
        Files.createSymbolicLink(inside.resolve("up"), Path.of(".."));
        Files.createSymbolicLink(inside.resolve("absolute"), directory.resolve("secret"));
        Files.createSymbolicLink(inside.resolve("top"), Path.of("/"));
        Files.createSymbolicLink(inside.resolve("sub/relative"), Path.of("../file"));
    }

    private static String read(Vfs vfs, String name) throws IOException {
        OpenFile file = vfs.open(vfs.workingDirectory, name, 0, 0);
        byte[] bytes = new byte[100];
        int count = file.read(null, bytes, 0, 100);
        file.release();
        return new String(bytes, 0, count, StandardCharsets.UTF_8);
    }

    private static int error(Vfs vfs, String name, int flags) {
        return assertThrows(Errno.class, () -> vfs.open("/", name, flags, 0644)).number;
    }

    @Test
    void namesStayInside() throws IOException {
        Vfs vfs = new Vfs(Options.none().readWrite(inside));
        assertEquals("ours", read(vfs, "file"));
        assertEquals("ours", read(vfs, "../../file"));
        assertEquals("ours", read(vfs, "/sub/../up/up/file"));
        assertEquals("ours", read(vfs, "sub/relative"));
        assertEquals("ours", read(vfs, "top/top/sub/./relative"));
        assertEquals(Errno.ENOENT, error(vfs, "../secret", 0));
        assertEquals(Errno.ENOENT, error(vfs, "up/secret", 0));
        assertEquals(Errno.ENOENT, error(vfs, "absolute", 0));
        assertEquals(Errno.ENOENT, error(vfs, directory.resolve("secret").toString(), 0));
    }

    @Test
    void linksThatTheGuestMakesStayInside() throws IOException {
        Vfs vfs = new Vfs(Options.none().readWrite(inside));
        vfs.at("/", "made", false, place -> {
            place.tree.symlink(directory.resolve("secret").toString(), place.inTree);
            return 0;
        });
        assertEquals(Errno.ENOENT, error(vfs, "made", 0));
        // Writing through it makes nothing outside either.
        assertEquals(Errno.ENOENT, error(vfs, "made", Flags.O_CREAT | Flags.O_WRONLY));
        assertEquals("secret", Files.readString(directory.resolve("secret")));
    }

    @Test
    void readOnlyIsReadOnly() throws IOException {
        Vfs vfs = new Vfs(Options.none().readOnly(inside));
        assertEquals("ours", read(vfs, "file"));
        assertEquals(Errno.EROFS, error(vfs, "file", Flags.O_WRONLY));
        assertEquals(Errno.EROFS, error(vfs, "file", Flags.O_TRUNC));
        assertEquals(Errno.EROFS, error(vfs, "new", Flags.O_CREAT | Flags.O_RDWR));
        assertThrows(Errno.class, () -> vfs.at("/", "file", false, place -> {
            place.tree.remove(place.inTree, false);
            return 0;
        }));
        assertThrows(Errno.class, () -> vfs.at("/", "d", false, place -> {
            place.tree.mkdir(place.inTree, 0755);
            return 0;
        }));
        assertTrue(Files.exists(inside.resolve("file")));
        assertFalse(Files.exists(inside.resolve("new")));
    }

    @Test
    void noneHasOnlyMemory() throws IOException {
        Vfs vfs = new Vfs(Options.none());
        assertEquals(Errno.ENOENT, error(vfs, "/etc/passwd", 0));
        assertEquals(Errno.EACCES, error(vfs, "/new", Flags.O_CREAT | Flags.O_RDWR));
        OpenFile file = vfs.open("/", "/tmp/a", Flags.O_CREAT | Flags.O_RDWR, 0644);
        file.write(null, "kept".getBytes(StandardCharsets.UTF_8), 0, 4);
        assertEquals("kept", read(vfs, "/tmp/a"));
        assertEquals("/tmp/a", vfs.leftInMemory());
        assertNotNull(vfs.open("/", "/dev/null", Flags.O_WRONLY, 0));
    }

    @Test
    void linksThatLoopAreRefused() throws IOException {
        Files.createSymbolicLink(inside.resolve("loop"), Path.of("loop"));
        Vfs vfs = new Vfs(Options.none().readOnly(inside));
        assertEquals(Errno.ELOOP, error(vfs, "loop", 0));
        assertEquals(Errno.ELOOP, error(vfs, "loop/x", 0));
    }

    @Test
    void aFileIsNoDirectory() {
        Vfs vfs = new Vfs(Options.none().readOnly(inside));
        assertEquals(Errno.ENOTDIR, error(vfs, "file/x", 0));
        assertEquals(Errno.ENOTDIR, error(vfs, "file/..", 0));
        assertEquals(Errno.ENOTDIR, error(vfs, "file/", 0));
    }
}
