#include <stdio.h>

int main(int argc, char **argv) {
    printf("hello %d %f\n", argc, argc * 1.5);
    for (int i = 1; i < argc; i++) printf("%s\n", argv[i]);
    return 3;
}
