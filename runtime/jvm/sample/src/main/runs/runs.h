/* Run-length coding: a pair of bytes stands for a run, how long it is and of which byte. */

struct stats {
    int runs;
    double mean;
};

/* The most bytes that so many can become. */
int pack_bound(int sourceLen);

/* Packs an array. 0, or -1 if the result has no room in `*destLen` bytes, which it then says. */
int pack(unsigned char *dest, int *destLen, const unsigned char *source, int sourceLen);

/* The reverse. -2 if the array is not whole. */
int unpack(unsigned char *dest, int *destLen, const unsigned char *source, int sourceLen);

/* How many runs there are, and how long they are. */
struct stats stats_of(const unsigned char *source, int sourceLen);
