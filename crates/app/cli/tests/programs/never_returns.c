/* main and last never return; work is called three times in earnest, and once for nothing. */
#include <stdlib.h>

static volatile long sum;

__attribute__((noinline)) static void work(int n)
{
	for (int i = 0; i < n; i++)
		sum += i;
}

__attribute__((noinline)) static void last(void)
{
	work(5000000);
	exit(3);
}

int main(void)
{
	work(0);
	work(5000000);
	work(5000000);
	last();
}
