/* Calls a small function as often as it is asked to. */
#include <stdlib.h>

__attribute__((noinline)) static unsigned leaf(unsigned value)
{
	return value * 2654435761u ^ value >> 7;
}

int main(int argc, char **argv)
{
	unsigned value = argc;
	for (long left = atol(argv[1]); left > 0; left--)
		value = leaf(value);
	return value == 0 ? 1 : 0;
}
