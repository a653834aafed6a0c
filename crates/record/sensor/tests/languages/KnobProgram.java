import dev.fettle.sensor.Knob;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** The Java twin of c/knob.c: says the knob's value for each line. */
public final class KnobProgram {
    private static final Knob KNOB = new Knob("test.knob", 3, 1, 1, -2, 5);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            System.out.println(KNOB.get());
        }
    }
}
