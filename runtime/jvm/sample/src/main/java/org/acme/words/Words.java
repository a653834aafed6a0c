package org.acme.words;

/** The functions of {@code words.c}. */
public interface Words {
    int countWords(String text);

    void eachWord(String text, Visitor visitor);

    String sortLetters(byte[] letters, int count);

    /** Takes a word's place. */
    interface Visitor {
        void visit(int start, int length);
    }
}
