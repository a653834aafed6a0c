/* The planets of the sun as points that attract each other; the argument says how many steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BODIES 5
static const double PI = 3.141592653589793, YEAR = 365.24;
static double x[BODIES][3], v[BODIES][3], mass[BODIES];

static const double start[BODIES][7] = {
    {0, 0, 0, 0, 0, 0, 1},
    {4.84143144246472090, -1.16032004402742839, -0.103622044471123109, 0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023, 0.000954791938424326609},
    {8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -0.00276742510726411, 0.00499852801234917238, 0.0000230417297573763929, 0.000285885980666130812},
    {12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556, 0.0000436624404335156298},
    {15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870, 0.0000515138902046611451},
};

static void advance(double dt) {
    for (int i = 0; i < BODIES; i++)
        for (int j = i + 1; j < BODIES; j++) {
            double dx = x[i][0] - x[j][0], dy = x[i][1] - x[j][1], dz = x[i][2] - x[j][2];
            double distance2 = dx * dx + dy * dy + dz * dz;
            double force = dt / (distance2 * sqrt(distance2));
            v[i][0] -= dx * mass[j] * force; v[i][1] -= dy * mass[j] * force; v[i][2] -= dz * mass[j] * force;
            v[j][0] += dx * mass[i] * force; v[j][1] += dy * mass[i] * force; v[j][2] += dz * mass[i] * force;
        }
    for (int i = 0; i < BODIES; i++)
        for (int k = 0; k < 3; k++) x[i][k] += dt * v[i][k];
}

static double energy(void) {
    double e = 0;
    for (int i = 0; i < BODIES; i++) {
        e += 0.5 * mass[i] * (v[i][0] * v[i][0] + v[i][1] * v[i][1] + v[i][2] * v[i][2]);
        for (int j = i + 1; j < BODIES; j++) {
            double dx = x[i][0] - x[j][0], dy = x[i][1] - x[j][1], dz = x[i][2] - x[j][2];
            e -= mass[i] * mass[j] / sqrt(dx * dx + dy * dy + dz * dz);
        }
    }
    return e;
}

int main(int count, char **arguments) {
    int steps = count > 1 ? atoi(arguments[1]) : 200000;
    double sun = 4 * PI * PI;
    for (int i = 0; i < BODIES; i++) {
        for (int k = 0; k < 3; k++) { x[i][k] = start[i][k]; v[i][k] = start[i][k + 3] * YEAR; }
        mass[i] = start[i][6] * sun;
    }
    for (int i = 0; i < steps; i++) advance(0.01);
    printf("%.9f\n", energy());
    return 0;
}
