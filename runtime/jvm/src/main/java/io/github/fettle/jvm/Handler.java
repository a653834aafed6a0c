package io.github.fettle.jvm;

/** What will handle an exception. CLDC has no enumerations. */
final class Handler {
    static final Handler NONE = new Handler();
    static final Handler GUEST = new Handler();
    static final Handler JAVA = new Handler();

    private Handler() {}
}
