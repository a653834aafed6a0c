// Files, directories, links, mappings: what a program sees of them.
#define _GNU_SOURCE
#include "show.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int cmp(const void *a, const void *b) {
    return strcmp(*(char **)a, *(char **)b);
}

static void st(const char *n) {
    struct stat s;
    if (lstat(n, &s))
        printf("%s: %s\n", n, strerror(errno));
    else
        printf("%s: mode %o nlink %d size %ld\n", n, s.st_mode,
               S_ISDIR(s.st_mode) ? 0 : (int)s.st_nlink, S_ISDIR(s.st_mode) ? 0L : (long)s.st_size);
}

int main() {
    char b[100];
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("d", 0755));
    SHOW(chdir("d"));
    int f = open("a", O_RDWR | O_CREAT | O_TRUNC, 0640);
    SHOW(write(f, "hello world", 11));
    SHOW(lseek(f, 6, SEEK_SET));
    memset(b, 0, 100);
    SHOW(read(f, b, 50));
    puts(b);
    SHOW(pwrite(f, "J", 1, 0));
    SHOW(pread(f, b, 5, 0));
    b[5] = 0;
    puts(b);
    SHOW(lseek(f, 0, SEEK_END));
    SHOW(lseek(f, -100, SEEK_SET));
    SHOW(lseek(f, 1LL << 20, SEEK_SET));
    SHOW(write(f, "x", 1));
    st("a");
    SHOW(ftruncate(f, 5));
    st("a");
    SHOW(ftruncate(f, 8));
    st("a");
    SHOW(fcntl(f, F_GETFL) & O_ACCMODE);
    int g = dup(f);
    SHOW(g);
    SHOW(dup2(f, 20));
    SHOW(fcntl(f, F_DUPFD, 30));
    SHOW(close(20));
    SHOW(close(20));
    SHOW(lseek(g, 0, SEEK_CUR));
    SHOW(close(f));
    SHOW(read(g, b, 10));
    SHOW(close(g));
    f = open("a", O_WRONLY | O_APPEND);
    SHOW(write(f, "APP", 3));
    SHOW(read(f, b, 1));
    SHOW(close(f));
    st("a");
    SHOW(open("a", O_CREAT | O_EXCL | O_RDWR, 0600));
    SHOW(open("nope", O_RDONLY));
    SHOW(open("a/b", O_RDONLY));
    SHOW(open("a/", O_RDONLY));
    SHOW(open(".", O_WRONLY));
    SHOW(symlink("a", "l"));
    st("l");
    memset(b, 0, 100);
    SHOW(readlink("l", b, 100));
    puts(b);
    SHOW(open("l", O_RDONLY | O_NOFOLLOW));
    f = open("l", O_RDONLY);
    SHOW(read(f, b, 3));
    SHOW(write(f, "x", 1));
    SHOW(close(f));
    SHOW(symlink("loop", "loop"));
    SHOW(open("loop", O_RDONLY));
    SHOW(link("a", "h"));
    st("h");
    SHOW(rename("h", "h2"));
    st("h");
    st("h2");
    SHOW(unlink("h2"));
    SHOW(unlink("h2"));
    SHOW(mkdir("sub", 0700));
    SHOW(rename("sub", "a"));
    SHOW(rename("a", "sub"));
    SHOW(unlink("sub"));
    SHOW(rmdir("a"));
    SHOW(rmdir("sub"));
    st("sub");
    SHOW(access("a", R_OK | W_OK));
    SHOW(access("a", X_OK));
    SHOW(access("zz", F_OK));
    SHOW(chmod("a", 0755));
    SHOW(access("a", X_OK));
    st("a");
    char *n[50];
    int k = 0;
    DIR *d = opendir(".");
    struct dirent *e;
    while ((e = readdir(d)))
        n[k++] = strdup(e->d_name);
    rewinddir(d);
    int k2 = 0;
    while ((e = readdir(d)))
        k2++;
    closedir(d);
    qsort(n, k, sizeof *n, cmp);
    for (int i = 0; i < k; i++)
        printf("%s ", n[i]);
    printf("%d\n", k2);
    struct iovec v[3] = {{"ab", 2}, {"", 0}, {"cdef", 4}};
    f = open("v", O_RDWR | O_CREAT, 0644);
    SHOW(writev(f, v, 3));
    lseek(f, 0, SEEK_SET);
    char x[3] = {0}, y[10] = {0};
    struct iovec w[2] = {{x, 2}, {y, 9}};
    SHOW(readv(f, w, 2));
    puts(x);
    puts(y);
    char *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    SHOW(m != MAP_FAILED);
    m[0] = 'Z';
    SHOW(msync(m, 4096, MS_SYNC));
    lseek(f, 0, SEEK_SET);
    SHOW(read(f, b, 6));
    b[6] = 0;
    puts(b);
    SHOW(munmap(m, 4096));
    m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(m, "moved");
    m = mremap(m, 8192, 1 << 20, MREMAP_MAYMOVE);
    puts(m);
    SHOW(m[(1 << 20) - 1]);
    SHOW(munmap(m, 1 << 20));
    int o = open("w", O_RDWR | O_CREAT, 0644);
    lseek(f, 0, 0);
    SHOW(sendfile(o, f, 0, 100));
    st("w");
    SHOW(close(f));
    SHOW(close(o));
    struct timespec ts[2] = {{1000000, 5}, {2000000, 7}};
    SHOW(utimensat(AT_FDCWD, "w", ts, 0));
    struct stat s;
    stat("w", &s);
    printf("%ld %ld\n", (long)s.st_atime, (long)s.st_mtim.tv_nsec);
    int df = open(".", O_RDONLY | O_DIRECTORY);
    f = openat(df, "w", O_RDONLY);
    SHOW(f >= 0);
    SHOW(fstat(f, &s));
    SHOW(s.st_size);
    SHOW(unlinkat(df, "w", 0));
    SHOW(fstat(f, &s));
    SHOW(s.st_nlink);
    SHOW(close(f));
    SHOW(fchdir(df));
    SHOW(faccessat(df, "v", W_OK, 0));
    char *q = getcwd(0, 0);
    printf("%s\n", strrchr(q, '/'));
    SHOW(chdir(".."));
    FILE *t = tmpfile();
    fputs("tmp", t);
    rewind(t);
    fgets(b, 10, t);
    puts(b);
    fclose(t);
    SHOW(truncate("d/v", 2));
    st("d/v");
    struct statx sx;
    SHOW(statx(AT_FDCWD, "d/v", 0, STATX_BASIC_STATS, &sx));
    printf("%o %d\n", sx.stx_mode, (int)sx.stx_size);
    SHOW(posix_fallocate(open("d/v", O_RDWR), 0, 100));
    st("d/v");
    char tn[] = "d/XXXXXX";
    SHOW(mkstemp(tn) > 0);
    unlink(tn);
    SHOW(isatty(1));
    SHOW(umask(077));
    SHOW(umask(022));
    SHOW(close(open("d/n", O_CREAT | O_WRONLY, 0777)));
    st("d/n");
    f = open("/dev/null", O_RDWR);
    SHOW(write(f, b, 9));
    SHOW(read(f, b, 9));
    f = open("/dev/zero", O_RDONLY);
    SHOW(read(f, b, 9));
    SHOW(b[3]);
    return 0;
}
