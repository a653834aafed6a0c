#include "runs.h"

static int length_of(const unsigned char *source, int sourceLen) {
    int length = 1;
    while (length < sourceLen && length < 255 && source[length] == source[0])
        length++;
    return length;
}

int pack_bound(int sourceLen) {
    return 2 * sourceLen;
}

int pack(unsigned char *dest, int *destLen, const unsigned char *source, int sourceLen) {
    int room = *destLen, used = 0;
    while (sourceLen > 0) {
        int length = length_of(source, sourceLen);
        if (room - used < 2)
            return -1;
        dest[used++] = length;
        dest[used++] = *source;
        source += length;
        sourceLen -= length;
    }
    *destLen = used;
    return 0;
}

int unpack(unsigned char *dest, int *destLen, const unsigned char *source, int sourceLen) {
    int room = *destLen, used = 0;
    if (sourceLen % 2)
        return -2;
    for (; sourceLen > 0; source += 2, sourceLen -= 2) {
        if (room - used < source[0])
            return -1;
        for (int i = 0; i < source[0]; i++)
            dest[used++] = source[1];
    }
    *destLen = used;
    return 0;
}

struct stats stats_of(const unsigned char *source, int sourceLen) {
    struct stats stats = {0, 0};
    for (int at = 0; at < sourceLen; stats.runs++)
        at += length_of(source + at, sourceLen - at);
    stats.mean = stats.runs ? (double)sourceLen / stats.runs : 0;
    return stats;
}
