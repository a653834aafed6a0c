package io.github.fettle.jvm;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;

/**
 * One guest process: its memory, what it may reach, and its threads. A JVM may hold many.
 *
 * <p>A guest used as a library belongs to one Java thread at a time, as a C library without locks
 * does.
 */
public final class Guest implements AutoCloseable {
    /** Java's largest array. */
    static final int MAX_MEMORY = Integer.MAX_VALUE - 8;

    /** What a guest with several threads gets at once: growing is possible only with one. */
    private static final int THREADED_MEMORY = 512 << 20;

    /** Memory behind the image at the start: enough for what a small program allocates. */
    private static final int FIRST_HEAP = 1 << 20;

    /** Memory behind that of a program without a kernel: some words, and what stands for exceptions. */
    private static final int SPARE = 16 + GuestThread.STAND_INS_SIZE;

    static final String CLASS = Guest.class.getName();

    /** The whole memory; {@link #index} says where an address is. */
    public byte[] memory;

    /** Set by another thread when something waits for {@link Signals#poll}. */
    public volatile boolean poll;

    final Options options;
    final GuestCode code;
    final ElfImage image;
    final boolean bigEndian;
    final Abi abi;
    final int limit;
    final MemoryMap map;
    final Vfs vfs;
    final FileTable files;
    final Signals signals;
    final Threads threads;
    final Waits waits = new Waits();
    final Clock clock = new Clock();
    final Callbacks callbacks = new Callbacks();
    final Handles handles = new Handles();
    final Exports exports = new Exports();
    final Imports imports = new Imports(this);
    final Trace trace;

    final Semihost.State semihost = new Semihost.State();

    /** What is left of {@link Options#fuel}. */
    long fuel;

    private final GuestThread first;
    private int stackTop;
    private Timers timers;
    private UnwindTables unwindTables;

    private Guest(GuestCode code, ElfImage image, Options options) throws IOException {
        this.code = code;
        this.image = image;
        this.options = options;
        bigEndian = image.bigEndian;
        abi = Abi.of(image);
        fuel = options.fuel;
        int size = image.isBare
                ? Math.max(code.memoryTop() ^ image.base, image.end)
                : MemoryMap.roundUp(image.end) + FIRST_HEAP;
        limit = Math.max(options.memoryLimit, size);
        memory = new byte[image.isBare ? size + SPARE : size];
        image.load(memory);
        map = new MemoryMap(this, image.end);
        vfs = new Vfs(options);
        files = FileTable.standard(this);
        signals = new Signals(this);
        threads = new Threads(this);
        trace = options.trace ? new Trace() : null;
        first = threads.first();
        exports.add(code.exports());
    }

    /** Makes a guest of translated code and the image that it was translated from. */
    public static Guest open(GuestCode code, InputStream image, Options options)
            throws IOException {
        return new Guest(code, ElfImage.read(image), options);
    }

    static Guest open(GuestCode code, ElfImage image, Options options) throws IOException {
        return new Guest(code, image, options);
    }

    /** The guest's first thread, on which Java calls it. */
    public GuestThread thread() {
        return first;
    }

    /**
     * Runs the program from its entry to its end.
     *
     * @return its exit status; 128 plus the host's number if a signal ended it
     */
    public int run() throws IOException {
        int sp = image.isBare ? 0 : prepareStack();
        threads.start(first, image.entry, sp, 0);
        GuestExit end = threads.awaitEnd();
        close();
        return end.status;
    }

    /**
     * Starts a library: runs constructors and {@code main}, which leaves by {@code _exit}.
     *
     * <p>Afterwards the guest's functions can be called by {@link #call}.
     */
    public void initialize() throws IOException {
        int sp = 0;
        if (image.isBare) {
            // It sets its stack pointer itself, to the end of its memory.
            stackTop = code.memoryTop();
        } else {
            sp = prepareStack();
        }
        first.carrier = Thread.currentThread();
        try {
            code.call(first, image.entry, sp, 0, 0, 0, 0);
        } catch (GuestExit e) {
            if (e.status != 0) {
                throw new GuestException(
                        "the library's main ended with status " + e.status, null, null);
            }
            threads.revive();
        }
    }

    /** Calls a guest function by address with any number of integer arguments. */
    public long call(int address, int... arguments) {
        GuestThread t = first;
        t.carrier = Thread.currentThread();
        int sp = abi.place(t, stackTop, arguments);
        int[] a = Arrays.copyOf(arguments, Abi.PASSED);
        try {
            return code.call(t, address, sp, a[0], a[1], a[2], a[3]);
        } catch (GuestThrow e) {
            if (e.getCause() != null) {
                throw Unwinder.<RuntimeException>sneak(e.getCause());
            }
            throw GuestException.of(t, e);
        } catch (GuestExit e) {
            throw new GuestException("the guest ended: " + e.getMessage(), null, null);
        } catch (IndexOutOfBoundsException e) {
            throw new GuestException("the guest used an address outside its memory", null, e);
        }
    }

    /** Where in the memory an address is. */
    public int index(int address) {
        return address ^ image.base;
    }

    /**
     * Says that Java is called by the guest: what it calls in turn must not write over the frames above
     * a stack pointer.
     *
     * @return what to give to {@link #leave} afterwards
     */
    int enter(GuestThread t, int sp) {
        int before = stackTop;
        if (t == first) {
            stackTop = sp;
        }
        return before;
    }

    void leave(int before) {
        stackTop = before;
    }

    /** Asks the guest to end, from another Java thread, at its next poll or system call. */
    public void interrupt() {
        threads.end(new GuestExit(128 + 15, Signals.TERM));
    }

    @Override
    public void close() throws IOException {
        map.sync(first, 0, Integer.MAX_VALUE);
        files.closeAll();
    }

    /** The guest's timers: most guests have none. */
    synchronized Timers timers() {
        if (timers == null) {
            timers = new Timers(this);
        }
        return timers;
    }

    /** What is known of exceptions in the guest's code. */
    synchronized UnwindTables unwindTables() {
        if (unwindTables == null) {
            unwindTables = UnwindTables.of(code);
        }
        return unwindTables;
    }

    /** Makes the memory reach an address; false if the limit or the heap does not allow it. */
    synchronized boolean ensure(GuestThread t, int end) {
        if (end <= memory.length) {
            return end >= 0;
        }
        if (end > limit || threads.several()) {
            return false;
        }
        long doubled = Math.max((long) memory.length * 2, end);
        return grow(t, (int) Math.min(doubled, limit)) || grow(t, end);
    }

    /** Gives the memory its last size, before a second thread can hold a reference to the array. */
    synchronized void fix(GuestThread t) {
        int wanted = (int) Math.min(limit, Math.max(THREADED_MEMORY, memory.length * 2L));
        while (wanted > memory.length && !grow(t, wanted)) {
            wanted -= wanted / 4;
        }
    }

    /** Counts one poll or system call against the fuel. */
    void burn() {
        if (fuel != Long.MAX_VALUE && --fuel < 0) {
            threads.end(new GuestExit(128 + 24, Signals.XCPU));
            threads.checkEnd();
        }
    }

    private boolean grow(GuestThread t, int size) {
        try {
            memory = Arrays.copyOf(memory, size);
        } catch (OutOfMemoryError e) {
            return false;
        }
        t.memory = memory;
        return true;
    }

    private int prepareStack() throws IOException {
        InitialStack stack = InitialStack.place(this, first);
        int sp = stack.build(first, options);
        stackTop = sp;
        first.stackBase = sp;
        return sp;
    }
}
