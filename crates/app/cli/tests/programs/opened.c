// A library for opener.c; FACTOR is its number.
__attribute__((noipa)) static long step(long sum, long n) {
    if (n < 0) return sum - FACTOR;
    return sum + FACTOR;
}

__attribute__((noipa)) long add_up(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum = step(sum, i);
    return sum;
}

__attribute__((noipa)) long work(long n) {
    return n == 0 ? 0 : add_up(n);
}
