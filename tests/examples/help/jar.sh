# needs: gcc-mipsel-linux-gnu libc6-dev-mipsel-cross default-jre-headless
cat > hello.c <<'C'
#include <stdio.h>
int main(void) { puts("hello"); return 0; }
C
