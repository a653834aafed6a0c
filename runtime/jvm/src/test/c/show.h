/* Prints an expression, its value, and the error if it is -1. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHOW(expression)                                                                           \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long value_ = (long)(expression);                                                          \
        printf("%s = %ld %s\n", #expression, value_, value_ == -1 ? strerror(errno) : "");         \
    } while (0)
