package javax.microedition.midlet;

/** What the runtime needs of MIDP's class to be compiled; devices bring their own. */
public abstract class MIDlet {
    protected abstract void startApp();

    protected abstract void pauseApp();

    protected abstract void destroyApp(boolean unconditional);

    public final native String getAppProperty(String name);
}
