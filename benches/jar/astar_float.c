#define NUMBER float
#include "astar.c"
