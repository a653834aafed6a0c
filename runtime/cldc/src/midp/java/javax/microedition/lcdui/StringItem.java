package javax.microedition.lcdui;

/** What the runtime needs of MIDP's class to be compiled; devices bring their own. */
public class StringItem extends Item {
    public StringItem(String label, String text) {}

    public native void setText(String text);
}
