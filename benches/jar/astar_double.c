#define NUMBER double
#include "astar.c"
