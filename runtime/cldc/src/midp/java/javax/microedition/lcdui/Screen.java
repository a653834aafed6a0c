package javax.microedition.lcdui;

/** What the runtime needs of MIDP's class to be compiled; devices bring their own. */
public abstract class Screen extends Displayable {}
