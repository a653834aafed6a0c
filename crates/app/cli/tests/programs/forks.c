/* Children return from calls that began in their parent, and make calls of their own. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 10 };

__attribute__((noinline)) static int leaf(int x)
{
    __asm__ volatile("" : "+r"(x));
    return x + 1;
}

__attribute__((noinline)) static int forks(int nth)
{
    if (nth == 0)
        usleep(300000);
    int child = fork();
    __asm__ volatile("" : "+r"(child));
    return child;
}

/* One more frame to return from; the last child stays inside of it. */
__attribute__((noinline)) static int outer(int nth)
{
    int child = forks(nth);
    if (child == 0 && nth == CHILDREN - 1)
        _exit(leaf(0));
    return leaf(child) - 1;
}

/* What children do is not done inside of calls that they have returned from. */
__attribute__((noinline)) static int works(int nth)
{
    usleep(30000);
    return leaf(nth);
}

int main(void)
{
    int codes = 0, status;
    for (int i = 0; i < CHILDREN; i++) {
        int child = i % 2 ? outer(i) : forks(i);
        if (child == 0)
            _exit(works(i));
        waitpid(child, &status, 0);
        codes += WEXITSTATUS(status);
    }
    printf("%d\n", codes);
    return 0;
}
