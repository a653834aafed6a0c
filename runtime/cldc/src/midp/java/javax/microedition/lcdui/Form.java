package javax.microedition.lcdui;

/** What the runtime needs of MIDP's class to be compiled; devices bring their own. */
public class Form extends Screen {
    public Form(String title) {}

    public native int append(Item item);
}
