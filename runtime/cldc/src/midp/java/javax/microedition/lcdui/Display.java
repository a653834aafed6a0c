package javax.microedition.lcdui;

import javax.microedition.midlet.MIDlet;

/** What the runtime needs of MIDP's class to be compiled; devices bring their own. */
public class Display {
    public static native Display getDisplay(MIDlet midlet);

    public native void setCurrent(Displayable next);
}
