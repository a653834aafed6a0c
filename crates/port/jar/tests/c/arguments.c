// Arguments in every place that a calling convention has: registers of both kinds, between a register
// and the stack, on the stack, by reference.
#include <stdlib.h>
#include <string.h>

typedef struct {
    double x, y;
} vector;

typedef struct {
    float f;
} single;

typedef struct {
    double d;
    int i;
} mixed;

typedef struct {
    short s;
    float f;
} small;

typedef struct {
    int a, b;
} two;

typedef struct {
    long long a;
} wide;

typedef struct {
    int a, b, c;
} three;

typedef struct {
    signed char a, b, c;
} bytes;

double many(int a, double b, long long c, float d, int e, long long f, double g, int h, int i,
            double j, long long k, short l) {
    return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11 + l * 12;
}

double floats(double a, float b, double c, float d, double e, float f, double g, float h, double i,
              float j, int k) {
    return a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8 + i * 9 + j * 10 + k * 11;
}

long long seventh(int a, int b, int c, int d, int e, int f, int g, long long h, int i, long long j) {
    return h - a - b - c - d - e - f - g + i * 1000 + j * 10000;
}

vector turned(vector v) {
    vector result = {-v.y, v.x};
    return result;
}

single halved(single s) {
    s.f /= 2;
    return s;
}

mixed grown(mixed m, int by) {
    m.d *= by;
    m.i += by;
    return m;
}

small negated(small s) {
    s.s = -s.s;
    s.f = -s.f;
    return s;
}

two exchanged(two t) {
    two result = {t.b, t.a};
    return result;
}

wide squared(wide w) {
    w.a *= w.a;
    return w;
}

three rotated(three t, three *unused) {
    three result = {t.b, t.c, t.a};
    return result;
}

bytes shifted(bytes b) {
    bytes result = {b.c, b.a, b.b};
    return result;
}

/* Structures when there are few registers left. */
double crowded(int a, int b, int c, int d, int e, int f, int g, two h, mixed i, small j, wide k,
               vector l, vector m, vector n, vector o) {
    return a + b + c + d + e + f + g + h.a * 2 + h.b * 3 + i.d * 4 + i.i * 5 + j.s * 6 + j.f * 7 +
           k.a * 8 + l.x * 9 + m.y * 10 + n.x * 11 + o.y * 12;
}

double visited(double (*visit)(int a, double b, long long c, float d, int e, int f, int g, int h,
                               long long i, double j, const char *k),
               int times) {
    double sum = 0;
    for (int i = 0; i < times; i++)
        sum += visit(i, 2.5, 1LL << 40, 0.25f, 5, 6, 7, 8, -9, 10, "eleven");
    return sum;
}

float rounded(float (*round)(float value), float value) {
    return round(value) * 2;
}

long long doubled_by(long long (*times)(long long value, int count), long long value) {
    return times(value, 2);
}

/* What is on the stack has to stay what it is while Java calls the library. */
int during(int (*call)(int at), int count) {
    char text[64];
    memset(text, 'x', sizeof text);
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += call(i);
    for (unsigned i = 0; i < sizeof text; i++)
        sum += text[i] != 'x' ? 1000000 : 0;
    return sum;
}

int unsigned_bytes(unsigned char a, unsigned short b, unsigned char *copy) {
    return a == 200 && b == 50000 ? a + b : -1;
}

void *const used[] = {(void *)malloc, (void *)free};

int main(void) {
    return used[0] == 0;
}
