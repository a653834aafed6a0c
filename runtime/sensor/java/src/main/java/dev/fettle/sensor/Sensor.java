package dev.fettle.sensor;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * Shared memory that a program commits its own events to: the counterpart of {@code runtime/sensor/fettle.h}, in Java
 * alone. Without {@code FETTLE_SENSORS} in the environment an event is one load and one branch.
 *
 * <p>Java cannot read the processor's time-stamp counter, so its time stamps are of {@code System.nanoTime}, which is
 * {@code CLOCK_MONOTONIC} on Linux; the sensor's head says so. It knows no thread ids of the system either: slots
 * belong to the process, and to one thread of Java each for as long as that lives. Java cannot fork.
 */
public abstract class Sensor {
    // Layouts: crates/base/abi/src/sensor.rs owns them.
    private static final long MAGIC = 0x0100454c54544546L;
    static final int SLOTS_AT = 4096;
    private static final int NAME_AT = 88;
    private static final int NAME_BYTES = 64;
    private static final int OWNERS_AT = 1024;
    private static final int CLOCK_MONOTONIC = 1;
    static final int HEAD_LEVEL = 192;
    static final int HEAD_BEAT = 256;
    static final int SCALAR = 1;
    static final int LIST = 2;
    static final int HISTOGRAM = 3;
    static final int KNOB = 4;
    static final int LIST_RING = 4096;

    static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INT =
            MethodHandles.byteBufferViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    static final long PID = ProcessHandle.current().pid();

    final String name;
    final int major;
    final int minor;
    final int instance;
    final int kind;
    final Policy policy;
    final int slots;
    final int cellLog2;
    final int ringLog2;

    private enum State {
        UNOPENED,
        ON,
        OFF
    }

    private volatile State state = State.UNOPENED;
    ByteBuffer memory;
    private FileChannel file;
    /** The thread that has a slot; one whose thread has ended is free. */
    private AtomicReferenceArray<WeakReference<Thread>> owners;
    private final ThreadLocal<Writer> writers = ThreadLocal.withInitial(this::claim);

    /** A thread's slot. */
    static final class Writer {
        final int at;
        final boolean shared;
        long stuckAt;

        Writer(int at, boolean shared) {
            this.at = at;
            this.shared = shared;
        }
    }

    Sensor(String name, int major, int minor, int instance, int kind, Policy policy, int slots, int cellLog2,
            int ringLog2) {
        if (name.contains("/") || name.getBytes(StandardCharsets.UTF_8).length >= NAME_BYTES) {
            throw new IllegalArgumentException("a sensor's name has at most 63 bytes and no slash: " + name);
        }
        if (slots < 1 || slots > 256 || kind == LIST && (cellLog2 < 4 || cellLog2 > 8 || ringLog2 < 12)) {
            throw new IllegalArgumentException("slots are 1 to 256, cells 16 to 256 bytes, rings 4 KiB or more");
        }
        if (SLOTS_AT + (long) slots * slotBytes(kind, ringLog2) > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("a sensor of Java has at most 2 GiB");
        }
        this.name = name;
        this.major = major;
        this.minor = minor;
        this.instance = instance;
        this.kind = kind;
        this.policy = policy;
        this.slots = slots;
        this.cellLog2 = cellLog2;
        this.ringLog2 = ringLog2;
    }

    private static long slotBytes(int kind, int ringLog2) {
        return kind == LIST ? LIST_RING + (1L << ringLog2) : kind == SCALAR ? 64 : 4096;
    }

    /** Whether events are taken: {@code FETTLE_SENSORS} asks for sensors, and there is room for them. */
    public final boolean isEnabled() {
        State now = state;
        return now == State.ON || now == State.UNOPENED && open();
    }

    private synchronized boolean open() {
        if (state == State.UNOPENED) {
            boolean made;
            try {
                made = make();
            } catch (IOException | UnsupportedOperationException | SecurityException e) {
                made = false;
            }
            state = made ? State.ON : State.OFF;
        }
        return state == State.ON;
    }

    /** The folder of sensors, if the environment asks for one and it is this user's alone; else null. */
    private static Path directory() throws IOException {
        String wish = System.getenv("FETTLE_SENSORS");
        if (wish == null || wish.isEmpty() || wish.equals("0")) {
            return null;
        }
        Object uid = Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        String run = System.getenv("XDG_RUNTIME_DIR");
        Path path = wish.startsWith("/")
                ? Path.of(wish)
                : run != null && run.startsWith("/") ? Path.of(run, "fettle") : Path.of("/dev/shm/fettle-" + uid);
        if (!Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            Files.createDirectory(path, permissions("rwx------"));
        }
        if (!Files.isDirectory(path, LinkOption.NOFOLLOW_LINKS)) {
            return null;
        }
        int mode = (Integer) Files.getAttribute(path, "unix:mode", LinkOption.NOFOLLOW_LINKS);
        boolean own = uid.equals(Files.getAttribute(path, "unix:uid", LinkOption.NOFOLLOW_LINKS));
        return own && (mode & 077) == 0 ? path : null;
    }

    private static FileAttribute<?> permissions(String text) {
        return PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(text));
    }

    /** When this process started, in ticks since boot; 0 if unknown. */
    private static long startTime() throws IOException {
        String text = Files.readString(Path.of("/proc/self/stat"));
        String[] fields = text.substring(text.lastIndexOf(')') + 1).trim().split(" ");
        return fields.length > 19 ? Long.parseLong(fields[19]) : 0;
    }

    private boolean make() throws IOException {
        Path folder = directory();
        if (folder == null) {
            return false;
        }
        long slotBytes = slotBytes(kind, ringLog2);
        long bytes = SLOTS_AT + slots * slotBytes + 4095 & ~4095L;
        Path path = folder.resolve(name + "." + PID + "." + Long.toHexString(System.nanoTime()));
        file = FileChannel.open(
                path,
                Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE),
                permissions("rw-------"));
        try {
            take(0, SLOTS_AT + slotBytes);
            // Growing the file takes no memory: slots do, when they are claimed.
            memory = file.map(FileChannel.MapMode.READ_WRITE, 0, bytes);
        } catch (IOException | RuntimeException e) {
            Files.deleteIfExists(path);
            throw e;
        }
        owners = new AtomicReferenceArray<>(slots);
        memory.order(ByteOrder.LITTLE_ENDIAN);
        int[] words = {1, 1, kind, policy.ordinal(), major, minor, instance, (int) PID};
        for (int i = 0; i < words.length; i++) {
            memory.putInt(8 + 4 * i, words[i]);
        }
        memory.putLong(40, startTime());
        long nanos = System.nanoTime();
        memory.putLong(48, nanos);
        memory.putLong(56, nanos);
        java.time.Instant now = java.time.Instant.now();
        memory.putLong(64, now.getEpochSecond() * 1_000_000_000 + now.getNano());
        memory.putInt(72, slots);
        memory.putInt(76, kind == LIST ? cellLog2 : 0);
        memory.putInt(80, kind == LIST ? ringLog2 : 0);
        memory.putInt(84, CLOCK_MONOTONIC);
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        for (int i = 0; i < text.length; i++) {
            memory.put(NAME_AT + i, text[i]);
        }
        prepare(SLOTS_AT);
        LONG.setRelease(memory, 0, MAGIC);
        return true;
    }

    /** Takes memory for these bytes now, so that a full disk is found here and not by a SIGBUS. */
    private void take(long from, long bytes) throws IOException {
        ByteBuffer zeros = ByteBuffer.allocate(1 << 16);
        for (long at = from; at < from + bytes; ) {
            zeros.clear().limit((int) Math.min(zeros.capacity(), from + bytes - at));
            at += file.write(zeros, at);
        }
    }

    /** Fills in what a kind has in its slot before others may see it. */
    void fill(int at) {}

    private void prepare(int at) {
        fill(at);
        if (kind == LIST) {
            memory.putInt(at + 24, policy.ordinal());
            memory.putInt(at + 28, ringLog2);
            if (policy == Policy.OVERWRITE) {
                LONG.setRelease(memory, at + 8, -1L);
            }
        }
    }

    /** The calling thread's slot, or the shared one if all have living owners. */
    private Writer claim() {
        int slotBytes = (int) slotBytes(kind, ringLog2);
        WeakReference<Thread> mine = new WeakReference<>(Thread.currentThread());
        for (int slot = 1; slot < slots; slot++) {
            WeakReference<Thread> seen = owners.get(slot);
            Thread owner = seen == null ? null : seen.get();
            if (owner != null && owner.isAlive() || !owners.compareAndSet(slot, seen, mine)) {
                continue;
            }
            int at = SLOTS_AT + slot * slotBytes;
            if (seen == null) {
                try {
                    take(at, slotBytes);
                } catch (IOException e) {
                    owners.set(slot, null);
                    break;
                }
                prepare(at);
                INT.setRelease(memory, OWNERS_AT + 4 * slot, (int) PID);
            }
            return new Writer(at, false);
        }
        return new Writer(SLOTS_AT, true);
    }

    final Writer writer() {
        return writers.get();
    }
}
