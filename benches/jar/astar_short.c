#define NUMBER short
#include "astar.c"
