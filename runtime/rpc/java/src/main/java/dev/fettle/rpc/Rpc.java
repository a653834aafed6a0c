package dev.fettle.rpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.Status;
import java.lang.ref.Cleaner;

/** What stubs of protoc-gen-fettle call; programs do not use it themselves. */
public final class Rpc {
    private static final Metadata.Key<String> TRACEPARENT =
            Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);

    private static final Cleaner CLEANER = Cleaner.create();

    private Rpc() {}

    /** Stands for a channel's {@code newCall}. */
    public static <Q, A> ClientCall<Q, A> newCall(
            Channel channel, MethodDescriptor<Q, A> descriptor, CallOptions options, Method method) {
        ClientCall<Q, A> inner = channel.newCall(descriptor, options);
        return Call.isEnabled() ? new Followed<>(inner, method) : inner;
    }

    /** A channel whose calls are followed, for what makes its calls itself. */
    public static Channel channel(Channel inner, Method method) {
        if (!Call.isEnabled()) {
            return inner;
        }
        return new Channel() {
            @Override
            public <Q, A> ClientCall<Q, A> newCall(MethodDescriptor<Q, A> descriptor, CallOptions options) {
                return new Followed<>(inner.newCall(descriptor, options), method);
            }

            @Override
            public String authority() {
                return inner.authority();
            }
        };
    }

    /** A call at its client. gRPC closes the listener once, however the call ends. */
    private static final class Followed<Q, A> extends SimpleForwardingClientCall<Q, A> {
        private final Call call;
        private final Cleaner.Cleanable left;
        private boolean isStarted;

        Followed(ClientCall<Q, A> inner, Method method) {
            super(inner);
            Call made = new Call(method, false);
            call = made;
            // gRPC never closes a call whose answers are not asked for.
            left = CLEANER.register(this, () -> made.end(Status.CANCELLED, Call.DROPPED));
        }

        @Override
        public void start(Listener<A> listener, Metadata headers) {
            isStarted = true;
            if (call.sendsId()) {
                headers.discardAll(TRACEPARENT);
                headers.put(TRACEPARENT, call.header());
            }
            Listener<A> followed = new SimpleForwardingClientCallListener<A>(listener) {
                @Override
                public void onMessage(A message) {
                    call.hook(Call.AFTER_REPLY_WAIT);
                    call.receives(message);
                    super.onMessage(message);
                }

                @Override
                public void onClose(Status status, Metadata trailers) {
                    call.end(status, Call.FINISHED);
                    left.clean();
                    super.onClose(status, trailers);
                }
            };
            try {
                super.start(followed, headers);
            } catch (RuntimeException e) {
                call.end(Status.UNKNOWN, Call.RAISED);
                throw e;
            }
        }

        @Override
        public void request(int messages) {
            call.hook(Call.BEFORE_REPLY_WAIT);
            super.request(messages);
        }

        @Override
        public void sendMessage(Q message) {
            call.hook(Call.BEFORE_MARSHAL);
            super.sendMessage(message);
            call.hook(Call.AFTER_MARSHAL);
            call.sends(message);
        }

        @Override
        public void cancel(String message, Throwable cause) {
            super.cancel(message, cause);
            if (!isStarted) {
                // Nothing else will be heard of it.
                call.end(Status.CANCELLED, Call.CANCELLED);
            }
        }
    }

    /** Stands for a method's handler in a service's definition. */
    public static <Q, A> ServerCallHandler<Q, A> server(ServerCallHandler<Q, A> handler, Method method) {
        return (inner, headers) -> {
            if (!Call.isEnabled()) {
                return handler.startCall(inner, headers);
            }
            Call call = new Call(method, true);
            call.comesFrom(headers.get(TRACEPARENT));
            ServerCall<Q, A> followed = new SimpleForwardingServerCall<Q, A>(inner) {
                @Override
                public void sendMessage(A message) {
                    call.hook(Call.BEFORE_REPLY_ONLY);
                    call.hook(Call.BEFORE_MARSHAL);
                    super.sendMessage(message);
                    call.hook(Call.AFTER_MARSHAL);
                    call.sends(message);
                    call.hook(Call.AFTER_REPLY_ONLY);
                }

                @Override
                public void close(Status status, Metadata trailers) {
                    if (isCancelled()) {
                        gone(call);
                    } else {
                        call.end(status, Call.FINISHED);
                    }
                    super.close(status, trailers);
                }
            };
            Context context = Context.current().withValue(Call.CURRENT, call);
            try {
                return new Heard<>(Contexts.interceptCall(context, followed, headers, handler), call);
            } catch (RuntimeException | Error e) {
                call.end(Status.UNKNOWN, Call.RAISED);
                throw e;
            }
        };
    }

    /** The call is over, and not by its handler. */
    private static void gone(Call call) {
        io.grpc.Deadline deadline = Context.current().getDeadline();
        if (deadline != null && deadline.isExpired()) {
            call.end(Status.DEADLINE_EXCEEDED, Call.DEADLINE);
        } else {
            call.end(Status.CANCELLED, Call.LEFT);
        }
    }

    /** What a server hears of a call. */
    private static final class Heard<Q> extends SimpleForwardingServerCallListener<Q> {
        private final Call call;

        Heard(ServerCall.Listener<Q> inner, Call call) {
            super(inner);
            this.call = call;
        }

        /** Runs what may run the program's own method. What it throws, gRPC makes UNKNOWN of. */
        private void guarded(Runnable step) {
            call.hook(Call.BEFORE_COMPONENT);
            try {
                step.run();
            } catch (RuntimeException | Error e) {
                call.end(Status.UNKNOWN, Call.RAISED);
                throw e;
            }
            call.hook(Call.AFTER_COMPONENT);
        }

        @Override
        public void onMessage(Q message) {
            call.receives(message);
            guarded(() -> super.onMessage(message));
        }

        @Override
        public void onHalfClose() {
            guarded(super::onHalfClose);
        }

        @Override
        public void onCancel() {
            gone(call);
            super.onCancel();
        }

        @Override
        public void onComplete() {
            // Its status was sent, unless the handler was not the one who did.
            call.end(Status.UNKNOWN, Call.RAISED);
            super.onComplete();
        }
    }
}
