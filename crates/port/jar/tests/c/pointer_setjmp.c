/* A call of setjmp through a pointer. */
#include <setjmp.h>
#include <stdio.h>

static jmp_buf env;
int (*volatile fill)(struct __jmp_buf_tag *) = _setjmp;

int main(void) {
    int code = fill(env);
    if (code < 3) longjmp(env, code + 1);
    printf("%d\n", code);
    return 0;
}
