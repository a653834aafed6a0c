// What LTTng's tracepoint consists of, where the program is compiled with it.
#ifdef FETTLE_LTTNG
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng.h"
#endif
