static char composite[10000];

int primes(void)
{
    int i, j, count = 0;
    for (i = 2; i < 10000; i++) {
        if (composite[i])
            continue;
        count++;
        for (j = i + i; j < 10000; j += i)
            composite[j] = 1;
    }
    return count;
}
