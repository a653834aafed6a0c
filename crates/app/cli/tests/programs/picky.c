// A personality routine that knows no landing pads but those behind the start of a function, as those
// of LDC and Crystal: it ends the program where a table begins with a base.
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

_Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class,
                                         struct _Unwind_Exception *, struct _Unwind_Context *);

_Unwind_Reason_Code _d_eh_personality(int version, _Unwind_Action actions,
                                      _Unwind_Exception_Class class,
                                      struct _Unwind_Exception *exception,
                                      struct _Unwind_Context *context) {
    const unsigned char *table = (const unsigned char *)_Unwind_GetLanguageSpecificData(context);
    if (table && *table != 0xff) {
        printf("a base: %x\n", *table);
        fflush(stdout);
        abort();
    }
    return __gxx_personality_v0(version, actions, class, exception, context);
}
