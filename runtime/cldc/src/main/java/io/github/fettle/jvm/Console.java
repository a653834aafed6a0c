package io.github.fettle.jvm;

/** Where a program writes its output. */
interface Console {
    /** Takes bytes of the standard output, or of the standard error. */
    void write(byte[] bytes, int count, boolean isError);
}
