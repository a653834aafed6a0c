package io.github.fettle.jvm;

/** A range of code with one language-specific data area. */
final class Region {
    final int start;
    final int end;
    final int area;
    final int personality;

    Region(int start, int end, int area, int personality) {
        this.start = start;
        this.end = end;
        this.area = area;
        this.personality = personality;
    }
}
