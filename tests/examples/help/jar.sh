# needs: gcc-mipsel-linux-gnu libc6-dev-mipsel-cross default-jre-headless
cat > hello.c <<'C'
#include <stdio.h>
int main(void) { puts("hello"); return 0; }
C
cat > words.c <<'C'
int count(const char *text) { int n = 0; for (; *text; text++) n += *text == ' '; return n + 1; }
C
