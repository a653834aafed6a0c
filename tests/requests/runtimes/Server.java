import com.sun.net.httpserver.HttpServer;
import java.io.FileOutputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.concurrent.Executors;

/**
 * The JDK's server and client: each request asks so many questions in turn.
 *
 * Server PORT ASKED LOG QUESTIONS. LOG gets which request went over which connection, a line for each exchange.
 */
public class Server {
    static FileOutputStream log;

    static synchronized void note(String number, int asking, int answering) {
        try {
            log.write((number + " " + asking + ":" + answering + "\n").getBytes());
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]), asked = Integer.parseInt(args[1]), questions = Integer.parseInt(args[3]);
        log = new FileOutputStream(args[2], true);
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 128);
        server.setExecutor(Executors.newFixedThreadPool(32));
        server.createContext("/", exchange -> {
            String number = exchange.getRequestHeaders().getFirst("X-Number");
            note(number, exchange.getRemoteAddress().getPort(), port);
            int size = 0;
            for (int n = 0; n < questions; n++) {
                // The server that is asked notes over which connection: here that is known too late.
                HttpRequest.Builder question = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + asked + "/" + n));
                try {
                    size += client.send(question.header("X-Number", number).build(), BodyHandlers.ofString()).body().length();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            byte[] body = (number + " " + size + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
