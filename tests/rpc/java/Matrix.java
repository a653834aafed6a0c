import dev.fettle.matrix.Answer;
import dev.fettle.matrix.Ask;
import dev.fettle.matrix.MatrixGrpc;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The matrix in Java: {@code Matrix server}, which prints its port, and {@code Matrix client PORT}, which asks its
 * parent by {@code cut} and {@code kill} to do what only that can.
 */
public final class Matrix {
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    static MatrixGrpc.MatrixBlockingStub next;

    static String end(String tag) {
        return tag.split("/")[1];
    }

    static boolean goesOn(String tag) {
        return List.of("ok", "idle", "forgotten").contains(end(tag));
    }

    static boolean hangs(String tag) {
        return List.of("cancel", "deadline", "cut", "killed").contains(end(tag));
    }

    /** Handlers that hang answer later, or never: they return at once. */
    static final class Service extends MatrixGrpc.MatrixImplBase {
        /** Without a handler, gRPC throws at what answers a call that is cancelled. */
        private static void mayBeCancelled(StreamObserver<Answer> out) {
            ((ServerCallStreamObserver<Answer>) out).setOnCancelHandler(() -> {});
        }

        private static void act(String tag, StreamObserver<Answer> out, boolean answers) {
            if (end(tag).equals("error")) {
                out.onError(Status.INVALID_ARGUMENT.asRuntimeException());
            } else if (end(tag).equals("abort")) {
                out.onError(Status.ABORTED.asRuntimeException());
            } else if (!hangs(tag)) {
                if (answers) {
                    out.onNext(Answer.newBuilder().setNumber(42).build());
                }
                out.onCompleted();
            }
        }

        @Override
        public void unary(Ask ask, StreamObserver<Answer> out) {
            mayBeCancelled(out);
            // Of a chain: as many calls of the next server as the first digit says, each with the other digits.
            if (next != null && !ask.getSecret().isEmpty()) {
                for (int n = ask.getSecret().charAt(0) - '0'; n > 0; n--) {
                    next.unary(ask.toBuilder().setSecret(ask.getSecret().substring(1)).build());
                }
            }
            act(ask.getTag(), out, true);
        }

        @Override
        public void serverStream(Ask ask, StreamObserver<Answer> out) {
            mayBeCancelled(out);
            for (int number = 1; number <= 3; number++) {
                out.onNext(Answer.newBuilder().setNumber(number).build());
            }
            act(ask.getTag(), out, false);
        }

        private static StreamObserver<Ask> stream(StreamObserver<Answer> out, boolean echoes) {
            mayBeCancelled(out);
            return new StreamObserver<>() {
                private String tag = "";
                private boolean isOver;

                @Override
                public void onNext(Ask ask) {
                    tag = ask.getTag();
                    if (isOver) {
                        return;
                    }
                    if (echoes) {
                        out.onNext(Answer.newBuilder().setNumber(1).build());
                    }
                    if (!goesOn(tag)) {
                        isOver = true;
                        act(tag, out, !echoes);
                    }
                }

                @Override
                public void onError(Throwable error) {}

                @Override
                public void onCompleted() {
                    if (!isOver) {
                        act(tag, out, !echoes);
                    }
                }
            };
        }

        @Override
        public StreamObserver<Ask> clientStream(StreamObserver<Answer> out) {
            return stream(out, false);
        }

        @Override
        public StreamObserver<Ask> bidi(StreamObserver<Answer> out) {
            return stream(out, true);
        }
    }

    static void serve() throws Exception {
        String port = System.getenv("FETTLE_NEXT");
        if (port != null) {
            next = MatrixGrpc.newBlockingStub(NettyChannelBuilder.forAddress("127.0.0.1", Integer.parseInt(port))
                    .usePlaintext()
                    .build());
        }
        Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                .addService(new Service())
                .build()
                .start();
        System.out.println(server.getPort());
        while (INPUT.readLine() != null) {}
        server.shutdownNow();
        System.exit(0);
    }

    static void askParent(String what) throws Exception {
        System.out.println(what);
        INPUT.readLine();
    }

    /** A call in progress, by the asynchronous stub. */
    static final class Running implements ClientResponseObserver<Ask, Answer> {
        final CountDownLatch over = new CountDownLatch(1);
        ClientCallStreamObserver<Ask> call;
        StreamObserver<Ask> requests;
        boolean reads = true;

        @Override
        public void beforeStart(ClientCallStreamObserver<Ask> stream) {
            call = stream;
            if (!reads) {
                stream.disableAutoRequestWithInitial(0);
            }
        }

        @Override
        public void onNext(Answer answer) {}

        @Override
        public void onError(Throwable error) {
            over.countDown();
        }

        @Override
        public void onCompleted() {
            over.countDown();
        }
    }

    static Running start(MatrixGrpc.MatrixStub stub, String kind, String tag, boolean reads) {
        Ask ask = Ask.newBuilder().setTag(tag).setBody(ByteString.copyFromUtf8("12345")).build();
        Running running = new Running();
        running.reads = reads;
        switch (kind) {
            case "unary":
                stub.unary(ask, running);
                break;
            case "server":
                stub.serverStream(ask, running);
                break;
            default:
                running.requests = kind.equals("client") ? stub.clientStream(running) : stub.bidi(running);
                running.requests.onNext(ask);
                running.requests.onNext(ask);
                if (goesOn(tag) && reads) {
                    running.requests.onCompleted();
                }
        }
        return running;
    }

    /** Prints the CPU time of a call, client and server in this process. */
    static void bench(int calls) throws Exception {
        var system = (com.sun.management.OperatingSystemMXBean)
                java.lang.management.ManagementFactory.getOperatingSystemMXBean();
        Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                .addService(new Service())
                .build()
                .start();
        ManagedChannel channel =
                NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
        MatrixGrpc.MatrixBlockingStub stub = MatrixGrpc.newBlockingStub(channel);
        Ask ask = Ask.newBuilder().setTag("unary/ok").setBody(ByteString.copyFromUtf8("12345")).build();
        // Until what runs often is compiled.
        for (int i = 0; i < 2 * calls; i++) {
            stub.unary(ask);
        }
        long begin = system.getProcessCpuTime();
        for (int i = 0; i < calls; i++) {
            stub.unary(ask);
        }
        System.out.println((system.getProcessCpuTime() - begin) / calls);
        System.exit(0);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("server")) {
            serve();
            return;
        }
        if (arguments[0].equals("bench")) {
            bench(Integer.parseInt(arguments[1]));
        }
        ManagedChannel channel = NettyChannelBuilder.forAddress("127.0.0.1", Integer.parseInt(arguments[1]))
                .usePlaintext()
                .disableRetry()
                .build();
        MatrixGrpc.MatrixStub stub = MatrixGrpc.newStub(channel);
        MatrixGrpc.MatrixBlockingStub blocking = MatrixGrpc.newBlockingStub(channel);
        List<Running> idle = new ArrayList<>();
        String[] ends = {"ok", "error", "cancel", "deadline", "abort", "cut", "idle", "forgotten", "killed"};
        for (String what : ends) {
            List<Running> running = new ArrayList<>();
            for (String kind : List.of("unary", "server", "client", "bidi")) {
                String tag = kind + "/" + what;
                Ask ask = Ask.newBuilder().setTag(tag).setBody(ByteString.copyFromUtf8("12345")).build();
                if (List.of("ok", "error", "abort").contains(what)) {
                    try {
                        if (kind.equals("unary")) {
                            blocking.unary(ask);
                        } else if (kind.equals("server")) {
                            Iterator<Answer> answers = blocking.serverStream(ask);
                            while (answers.hasNext()) {
                                answers.next();
                            }
                        } else {
                            start(stub, kind, tag, true).over.await();
                        }
                    } catch (StatusRuntimeException e) {
                        // As it should be.
                    }
                } else if (what.equals("deadline")) {
                    start(stub.withDeadlineAfter(300, TimeUnit.MILLISECONDS), kind, tag, true).over.await();
                } else if (what.equals("cancel")) {
                    Running call = start(stub, kind, tag, true);
                    Thread.sleep(100);
                    call.call.cancel("enough", null);
                    call.over.await();
                } else if (what.equals("idle")) {
                    idle.add(start(stub, kind, tag, false));
                } else if (what.equals("forgotten")) {
                    // Its context is cancelled, as that of a request whose answer is not needed any more.
                    Context.CancellableContext context = Context.current().withCancellation();
                    context.run(() -> start(stub, kind, tag, false));
                    Thread.sleep(100);
                    context.cancel(null);
                } else {
                    running.add(start(stub, kind, tag, true));
                }
            }
            if (what.equals("cut") || what.equals("killed")) {
                Thread.sleep(200);
                askParent(what.equals("cut") ? "cut" : "kill");
                for (Running call : running) {
                    call.over.await();
                }
                if (what.equals("cut")) {
                    blocking.withWaitForReady().withDeadlineAfter(10, TimeUnit.SECONDS)
                            .unary(Ask.newBuilder().setTag("unary/again").build());
                }
            }
        }
        channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
        // gRPC does not close a call whose answers were not asked for: it is over when it is collected.
        java.lang.ref.Reference.reachabilityFence(idle);
        idle = null;
        System.gc();
        Thread.sleep(200);
        System.out.println("done");
    }
}
