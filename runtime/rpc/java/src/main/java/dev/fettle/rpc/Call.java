package dev.fettle.rpc;

import com.google.protobuf.MessageLite;
import dev.fettle.sensor.EventList;
import dev.fettle.sensor.Policy;
import io.grpc.Context;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** A call in progress. What is recorded of it lies in it and in no thread, and it ends once. */
public final class Call {
    // Hooks by number: crates/record/rpc/src/hooks.rs has them all.
    static final int BEFORE_CALL = 3;
    static final int AFTER_CALL = 4;
    static final int BEFORE_DISPATCH = 5;
    static final int AFTER_DISPATCH = 6;
    static final int BEFORE_REPLY_ONLY = 7;
    static final int AFTER_REPLY_ONLY = 8;
    static final int BEFORE_REPLY_WAIT = 9;
    static final int AFTER_REPLY_WAIT = 10;
    static final int BEFORE_COMPONENT = 11;
    static final int AFTER_COMPONENT = 12;
    static final int BEFORE_UNMARSHAL = 13;
    static final int AFTER_UNMARSHAL = 14;
    static final int BEFORE_MARSHAL = 15;
    static final int AFTER_MARSHAL = 16;

    // Events: crates/base/abi/src/rpc.rs owns them.
    private static final int CALL_EVENT = 1;
    private static final int HOOK_EVENT = 16;
    private static final int FIELDS_AT = 9;
    private static final int WORDS = 30;
    private static final int TEXT_BYTES = 32;
    private static final int NO_STATUS = 255;
    static final int FINISHED = 1;
    static final int CANCELLED = 2;
    static final int DEADLINE = 3;
    static final int DROPPED = 4;
    static final int RAISED = 5;
    static final int LEFT = 6;

    private static final EventList CALLS = new EventList("rpc.calls", 17, 1, Policy.DROP, 65, 8, 20);
    static final Context.Key<Call> CURRENT = Context.key("fettle");

    private final Method method;
    private final boolean isServer;
    private final AtomicBoolean over = new AtomicBoolean();
    // gRPC's threads take turns on each direction of a call, so these need no locks.
    private int sent;
    private int received;
    private long sentBytes;
    private long receivedBytes;
    private final long[] words = new long[WORDS];
    private final Object variables;

    /** Whether calls are reported. */
    static boolean isEnabled() {
        return CALLS.isEnabled();
    }

    Call(Method method, boolean isServer) {
        this.method = method;
        this.isServer = isServer;
        words[0] = System.nanoTime();
        ThreadLocalRandom random = ThreadLocalRandom.current();
        Call outer = isServer ? null : CURRENT.get();
        words[5] = outer != null ? outer.words[5] : random.nextLong();
        words[6] = outer != null ? outer.words[6] : random.nextLong();
        words[7] = random.nextLong() | 1;
        words[8] = outer != null ? outer.words[7] : 0;
        variables = method.variables == null ? null : method.variables.get();
        hook(isServer ? BEFORE_DISPATCH : BEFORE_CALL);
    }

    /** What the hook variable_declaration made. */
    public Object variables() {
        return variables;
    }

    boolean sendsId() {
        return method.sendsId;
    }

    /** The call's own id. */
    public long span() {
        return words[7];
    }

    /** Takes over the ids of a {@code traceparent}, if it is one. */
    void comesFrom(String header) {
        if (header == null || header.length() < 52 || header.charAt(2) != '-' || header.charAt(35) != '-') {
            return;
        }
        try {
            long high = Long.parseUnsignedLong(header.substring(3, 19), 16);
            long low = Long.parseUnsignedLong(header.substring(19, 35), 16);
            long span = Long.parseUnsignedLong(header.substring(36, 52), 16);
            if ((high | low) != 0 && span != 0) {
                words[5] = high;
                words[6] = low;
                words[8] = span;
            }
        } catch (NumberFormatException e) {
            // It is another program's, and not as the W3C has it.
        }
    }

    private static void hex(StringBuilder text, long value) {
        for (int shift = 60; shift >= 0; shift -= 4) {
            text.append(Character.forDigit((int) (value >>> shift & 15), 16));
        }
    }

    /** The call's own {@code traceparent}. */
    String header() {
        StringBuilder text = new StringBuilder(55).append("00-");
        hex(text, words[5]);
        hex(text, words[6]);
        text.append('-');
        hex(text, words[7]);
        return text.append("-01").toString();
    }

    private long what(int status, int ended) {
        return method.what | (long) status << 8 | (long) ended << 4 | (isServer ? 1 : 0);
    }

    /** Passes a hook: its event in the mode cflow, and code of one's own. */
    void hook(int number) {
        if (method.mode == Mode.CFLOW) {
            CALLS.commit(HOOK_EVENT + number, words[7], what(NO_STATUS, 0), words[5], words[6], System.nanoTime());
        }
        if (method.hooks != null) {
            Consumer<Call> own = method.hooks.apply(number);
            if (own != null) {
                own.accept(this);
            }
        }
    }

    private static int size(Object message) {
        return message instanceof MessageLite ? ((MessageLite) message).getSerializedSize() : 0;
    }

    /** Counts a message that is sent, and takes what is marked in it. */
    void sends(Object message) {
        sent++;
        sentBytes += size(message);
        take(isServer ? method.response : method.request, message, sent == 1);
    }

    /** Counts a message that has come, and takes what is marked in it. */
    void receives(Object message) {
        received++;
        receivedBytes += size(message);
        take(isServer ? method.request : method.response, message, received == 1);
    }

    private void take(Method.Marked marked, Object message, boolean first) {
        if (marked != null && !over.get()) {
            marked.take(message, this, first);
        }
    }

    /** Sets a field of the call. */
    public void value(int word, long value) {
        words[FIELDS_AT + word] = value;
    }

    /** Adds to a field of the call. */
    public void add(int word, long value) {
        words[FIELDS_AT + word] += value;
    }

    /** Sets a field of the call to a number with a fraction. */
    public void number(int word, double value) {
        words[FIELDS_AT + word] = Double.doubleToRawLongBits(value);
    }

    /** Sets a field of the call: its first bytes. */
    public void text(int word, String text) {
        text(word, text.substring(0, Math.min(text.length(), TEXT_BYTES)).getBytes(StandardCharsets.UTF_8));
    }

    /** Sets a field of the call: its first bytes. */
    public void text(int word, byte[] bytes) {
        for (int i = 0; i < TEXT_BYTES / 8; i++) {
            long value = 0;
            for (int j = 0; j < 8 && 8 * i + j < bytes.length; j++) {
                value |= (bytes[8 * i + j] & 0xffL) << 8 * j;
            }
            words[FIELDS_AT + word + i] = value;
        }
    }

    boolean isOver() {
        return over.get();
    }

    /** Ends the call, if nothing has yet. */
    void end(Status status, int ended) {
        if (!over.compareAndSet(false, true)) {
            return;
        }
        int code = status.getCode().value();
        if (ended == FINISHED && !isServer) {
            ended = status.getCode() == Status.Code.CANCELLED
                    ? CANCELLED
                    : status.getCode() == Status.Code.DEADLINE_EXCEEDED ? DEADLINE : FINISHED;
        }
        hook(isServer ? AFTER_DISPATCH : AFTER_CALL);
        if (method.mode == Mode.SCALAR) {
            Method.Sums sums = method.sums(isServer);
            sums.times.record(System.nanoTime() - words[0]);
            if (code != 0) {
                sums.failed.add(1);
            }
            return;
        }
        words[1] = what(code, ended);
        words[2] = (long) received << 32 | sent & 0xffffffffL;
        words[3] = sentBytes;
        words[4] = receivedBytes;
        int n = WORDS;
        while (n > FIELDS_AT && words[n - 1] == 0) {
            n--;
        }
        CALLS.commit(CALL_EVENT, words, n);
    }
}
