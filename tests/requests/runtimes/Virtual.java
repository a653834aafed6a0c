import com.sun.net.httpserver.HttpServer;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLConnection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Virtual threads, one for each request, which ask by sockets that block: two questions in turn or at once, then a third one.
 *
 * Virtual PORT ASKED LOG turns|both. LOG gets which request went over which connection, a line for each exchange.
 */
public class Virtual {
    static FileOutputStream log;

    static synchronized void note(String number, int asking, int answering) {
        try {
            log.write((number + " " + asking + ":" + answering + "\n").getBytes());
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** The server that is asked notes over which connection: here that is known too late, when another has the connection. */
    static int ask(String number, int asked, int n) throws IOException {
        URLConnection connection = URI.create("http://127.0.0.1:" + asked + "/" + n).toURL().openConnection();
        connection.setRequestProperty("X-Number", number);
        try (InputStream in = connection.getInputStream()) {
            return in.readAllBytes().length;
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]), asked = Integer.parseInt(args[1]);
        boolean both = args[3].equals("both");
        log = new FileOutputStream(args[2], true);
        ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 128);
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            String number = exchange.getRequestHeaders().getFirst("X-Number");
            note(number, exchange.getRemoteAddress().getPort(), port);
            int size = 0;
            try {
                if (both) {
                    List<Future<Integer>> answers = new ArrayList<>();
                    for (int n = 0; n < 2; n++) {
                        int which = n;
                        answers.add(threads.submit(() -> ask(number, asked, which)));
                    }
                    for (Future<Integer> answer : answers) {
                        size += answer.get();
                    }
                } else {
                    size += ask(number, asked, 0) + ask(number, asked, 1);
                }
            } catch (InterruptedException | java.util.concurrent.ExecutionException e) {
                throw new IllegalStateException(e);
            }
            size += ask(number, asked, 2);
            byte[] body = (number + " " + size + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
