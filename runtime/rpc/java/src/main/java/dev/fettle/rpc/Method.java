package dev.fettle.rpc;

import dev.fettle.sensor.Histogram;
import dev.fettle.sensor.Scalar;
import java.nio.charset.StandardCharsets;
import java.util.function.IntFunction;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** A method, as stubs describe it. */
public final class Method {
    /** Takes what is marked from a message. */
    public interface Marked {
        /** {@code first} says that it is the first message in its direction. */
        void take(Object message, Call call, boolean first);
    }

    private static final int MAJOR = 17;

    final long what;
    final String name;
    final Mode mode;
    final boolean sendsId;
    final Marked request;
    final Marked response;
    final IntFunction<Consumer<Call>> hooks;
    final Supplier<Object> variables;
    private volatile Sums[] sums;

    static final class Sums {
        final Histogram times;
        final Scalar failed;

        Sums(String name, int minor, int side) {
            times = new Histogram(name + ".ns", MAJOR, minor, side);
            failed = new Scalar(name + ".failed", MAJOR, minor, 2 + side);
        }
    }

    /** A method by what events say of it; {@code hooks} and {@code variables} may be null. */
    public Method(int service, int number, String name, int flags, Mode mode, boolean sendsId, Marked request,
            Marked response, IntFunction<Consumer<Call>> hooks, Supplier<Object> variables) {
        this.what = (long) service << 32 | (long) number << 16 | flags;
        this.name = name;
        this.mode = mode;
        this.sendsId = sendsId;
        this.request = request;
        this.response = response;
        this.hooks = hooks;
        this.variables = variables;
    }

    /** The sensors of the mode {@link Mode#SCALAR}. */
    Sums sums(boolean isServer) {
        Sums[] made = sums;
        if (made == null) {
            synchronized (this) {
                made = sums;
                if (made == null) {
                    int minor = 0x811c9dc5;
                    for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
                        minor = (minor ^ b & 0xff) * 0x01000193;
                    }
                    made = new Sums[2];
                    for (int side = 0; side < 2; side++) {
                        String full = name.replace('/', '.') + (side == 0 ? ".client" : ".server");
                        made[side] = new Sums(full.substring(Math.max(0, full.length() - 56)), minor, side);
                    }
                    sums = made;
                }
            }
        }
        return made[isServer ? 1 : 0];
    }
}
