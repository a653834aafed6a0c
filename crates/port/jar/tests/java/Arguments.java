import org.acme.Lib;

/** Calls arguments.c through the interface that is made of it. */
public final class Arguments {
    public static void main(String[] arguments) throws Exception {
        try (Lib lib = Lib.open()) {
            System.out.println(lib.many(
                    1, 2, 1L << 33, 4, 5, -6, 7.5, 8, 9, 10.25, 1L << 34, (short) -12));
            System.out.println(lib.floats(1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10.5f, 11));
            System.out.println(lib.seventh(1, 2, 3, 4, 5, 6, 7, 1L << 40, 9, -(1L << 35)));
            System.out.println(lib.turned(new Lib.Vector(1.5, 2)));
            System.out.println(lib.halved(new Lib.Single(5)));
            System.out.println(lib.grown(new Lib.Mixed(1.5, 7), 3));
            System.out.println(lib.negated(new Lib.Small((short) 300, 0.5f)));
            System.out.println(lib.exchanged(new Lib.Two(1, -2)));
            System.out.println(lib.squared(new Lib.Wide(1L << 20)));
            System.out.println(lib.rotated(new Lib.Three(1, 2, 3), 0));
            System.out.println(lib.shifted(new Lib.Bytes((byte) 1, (byte) -2, (byte) 3)));
            System.out.println(lib.crowded(
                    1, 2, 3, 4, 5, 6, 7, new Lib.Two(8, 9), new Lib.Mixed(10.5, 11),
                    new Lib.Small((short) 12, 13.5f), new Lib.Wide(14), new Lib.Vector(15, 16),
                    new Lib.Vector(17, 18), new Lib.Vector(19, 20), new Lib.Vector(21, 22)));
            double sum = lib.visited(
                    (a, b, c, d, e, f, g, h, i, j, k) -> {
                        System.out.println(a + " " + b + " " + c + " " + d + " " + e + " " + f + " "
                                + g + " " + h + " " + i + " " + j + " " + k);
                        return a + 0.5;
                    },
                    2);
            System.out.println(sum);
            System.out.println(lib.rounded(value -> Math.round(value), 2.6f));
            System.out.println(lib.doubled_by((value, count) -> value * count, 1L << 35));
            // What Java calls from a callback lies below the frames of who called it.
            System.out.println(lib.during(at -> lib.exchanged(new Lib.Two(at, at + 1)).a(), 3));
            System.out.println(lib.unsigned_bytes((byte) 200, (short) 50000, null));
        }
    }
}
