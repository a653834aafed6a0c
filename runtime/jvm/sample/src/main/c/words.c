#include <ctype.h>
#include <fettle/java.h>
#include <stdio.h>
#include <string.h>

/* Counts the words of a text. */
int countWords(const char *text) {
    int count = 0, inside = 0;
    for (; *text; text++) {
        int letter = isalpha((unsigned char)*text) != 0;
        count += letter && !inside;
        inside = letter;
    }
    return count;
}
FETTLE_EXPORT(countWords)

/* Calls back for each word with where it starts and how long it is. */
void eachWord(const char *text, void (*visit)(int start, int length)) {
    const char *at = text;
    while (*at) {
        size_t length = strcspn(at, " ");
        if (length)
            visit(at - text, length);
        at += length;
        at += strspn(at, " ");
    }
}
FETTLE_EXPORT(eachWord)

/* Sorts the letters of a text in place, and describes what it did. */
const char *sortLetters(char *letters, int count) {
    static char report[64];
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && letters[j - 1] > letters[j]; j--) {
            char held = letters[j];
            letters[j] = letters[j - 1];
            letters[j - 1] = held;
        }
    snprintf(report, sizeof report, "sorted %d letters, %.1f%% of the buffer", count,
             100.0 * count / sizeof report);
    return report;
}
FETTLE_EXPORT(sortLetters)

FETTLE_LIBRARY
