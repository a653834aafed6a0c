package io.github.fettle.jvm;

import java.io.IOException;
import javax.microedition.lcdui.Display;
import javax.microedition.lcdui.Form;
import javax.microedition.lcdui.StringItem;
import javax.microedition.midlet.MIDlet;

/**
 * A program as a MIDlet: its output is on the screen, and on the console of an emulator. The translator
 * makes a class of each program that says which it is.
 *
 * <p>The attribute {@code Fettle-Arguments} has the program's arguments, with blanks between them.
 */
public abstract class Midlet extends MIDlet implements Runnable, Console {
    /** What a screen keeps of the output. */
    private static final int SHOWN = 2000;

    private final StringBuffer text = new StringBuffer();
    private StringItem item;
    private boolean started;

    /** The translated program. */
    protected abstract GuestCode code();

    public void startApp() {
        if (started) {
            return; // it was paused, and its thread was not
        }
        started = true;
        item = new StringItem("", "");
        String name = getAppProperty("MIDlet-Name");
        Form form = new Form(name == null ? "Program" : name);
        form.append(item);
        Display.getDisplay(this).setCurrent(form);
        new Thread(this).start();
    }

    public void pauseApp() {}

    public void destroyApp(boolean unconditional) {}

    public void run() {
        String end;
        try {
            GuestCode code = code();
            Guest guest = new Guest(code, code.getClass().getResourceAsStream("image.elf"), this);
            end = "exit status ".concat(String.valueOf(guest.run(arguments())));
        } catch (IOException e) {
            end = e.toString();
        } catch (OutOfMemoryError e) {
            end = "not enough memory";
        }
        show("\n[".concat(end).concat("]"));
    }

    private String[] arguments() {
        String all = getAppProperty("Fettle-Arguments");
        if (all == null || all.length() == 0) {
            return new String[0];
        }
        int count = 1;
        for (int at = all.indexOf(' '); at >= 0; at = all.indexOf(' ', at + 1)) {
            count++;
        }
        String[] parts = new String[count];
        for (int i = 0, from = 0; i < count; i++) {
            int to = all.indexOf(' ', from);
            parts[i] = all.substring(from, to < 0 ? all.length() : to);
            from = to + 1;
        }
        return parts;
    }

    public void write(byte[] bytes, int count, boolean isError) {
        System.out.write(bytes, 0, count);
        System.out.flush();
        show(new String(bytes, 0, count));
    }

    private void show(String more) {
        text.append(more);
        if (text.length() > SHOWN) {
            text.delete(0, text.length() - SHOWN);
        }
        item.setText(text.toString());
    }
}
