import dev.fettle.sensor.EventList;
import dev.fettle.sensor.Policy;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The Java twin of c/producer.c. */
public final class Producer {
    private static final VarHandle LONG =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    public static void main(String[] arguments) throws Exception {
        int[] numbers = new int[5];
        for (int i = 0; i < 5; i++) {
            numbers[i] = Integer.parseInt(arguments[1 + i]);
        }
        FileChannel file =
                FileChannel.open(Path.of(arguments[0]), StandardOpenOption.READ, StandardOpenOption.WRITE);
        ByteBuffer truth = file.map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        EventList events = new EventList(
                "test.events", 1, 1, Policy.values()[numbers[0]], numbers[1], 5, numbers[2]);
        for (int n = 0; n < numbers[3]; n++) {
            long thread = n;
            new Thread(() -> {
                        for (long i = 0; numbers[4] == 0 || i < numbers[4]; i++) {
                            long word = thread << 48 | i;
                            LONG.setVolatile(truth, (int) (16 * thread), i + 1);
                            events.commit((int) (i & 0xffff), word, word * 0x9e3779b97f4a7c15L);
                            LONG.setVolatile(truth, (int) (16 * thread) + 8, i + 1);
                        }
                    })
                    .start();
        }
    }
}
