import io.github.fettle.jvm.GuestException;
import io.github.fettle.jvm.Options;
import java.util.Arrays;
import org.acme.Lib;

/** Calls interface.c through the interface that is made of it. */
public final class Interface {
    public static void main(String[] arguments) throws Exception {
        try (Lib lib = Lib.open(Options.none().fuel(5_000_000)); Lib other = Lib.open()) {
            System.out.println(lib.sum(new int[] {1, 2, 3}) + " " + lib.sum(null));
            double[] values = {1.5, 2};
            lib.twice(values);
            System.out.println(Arrays.toString(values));
            System.out.println(lib.greet("you"));
            Lib.Point point = lib.move_point(new Lib.Point(1, 2.5, "x"), 4);
            boolean same = point.equals(new Lib.Point(5, 5, "moved"));
            System.out.println(point + " " + same + " " + lib.norm(point));
            System.out.println(lib.swapped(new Lib.Pair((short) 3, 70000L)));
            System.out.println(lib.wide(1L << 40, 3) + " " + lib.odd((byte) 3));
            System.out.println(lib.each("abc", (at, letter, rest) -> letter + rest.length() * at));
            System.out.println(new String(lib.doubled("abc".getBytes(), 1)));
            int list = lib.push(lib.push(0, 3), 4);
            int counter = lib.counting();
            lib.counted(counter);
            System.out.println(lib.sum_of(list) + " " + lib.counted(counter));
            fails(() -> lib.doubled("abc".getBytes(), -1));
            System.out.println(lib.count() + " " + lib.count() + " " + other.count());
            fails(() -> lib.spin(1));
            Thread thread = new Thread(() -> other.library().guest().interrupt());
            thread.start();
            fails(() -> other.spin(1));
        }
    }

    private static void fails(Runnable call) {
        try {
            call.run();
            System.out.println("nothing happened");
        } catch (GuestException e) {
            System.out.println(e.getMessage());
        }
    }
}
