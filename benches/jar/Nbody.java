/** What nbody.c does, as a Java programmer writes it. */
public final class Nbody {
    private static final class Body {
        double x, y, z, vx, vy, vz, mass;
    }

    private static final double[][] START = {
        {0, 0, 0, 0, 0, 0, 1},
        {4.84143144246472090, -1.16032004402742839, -0.103622044471123109, 0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023, 0.000954791938424326609},
        {8.34336671824457987, 4.12479856412430479, -0.403523417114321381, -0.00276742510726411, 0.00499852801234917238, 0.0000230417297573763929, 0.000285885980666130812},
        {12.8943695621391310, -15.1111514016986312, -0.223307578892655734, 0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556, 0.0000436624404335156298},
        {15.3796971148509165, -25.9193146099879641, 0.179258772950371181, 0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870, 0.0000515138902046611451},
    };

    private static void advance(Body[] bodies, double dt) {
        for (int i = 0; i < bodies.length; i++) {
            Body a = bodies[i];
            for (int j = i + 1; j < bodies.length; j++) {
                Body b = bodies[j];
                double dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
                double distance2 = dx * dx + dy * dy + dz * dz;
                double force = dt / (distance2 * Math.sqrt(distance2));
                a.vx -= dx * b.mass * force;
                a.vy -= dy * b.mass * force;
                a.vz -= dz * b.mass * force;
                b.vx += dx * a.mass * force;
                b.vy += dy * a.mass * force;
                b.vz += dz * a.mass * force;
            }
        }
        for (Body body : bodies) {
            body.x += dt * body.vx;
            body.y += dt * body.vy;
            body.z += dt * body.vz;
        }
    }

    private static double energy(Body[] bodies) {
        double e = 0;
        for (int i = 0; i < bodies.length; i++) {
            Body a = bodies[i];
            e += 0.5 * a.mass * (a.vx * a.vx + a.vy * a.vy + a.vz * a.vz);
            for (int j = i + 1; j < bodies.length; j++) {
                Body b = bodies[j];
                double dx = a.x - b.x, dy = a.y - b.y, dz = a.z - b.z;
                e -= a.mass * b.mass / Math.sqrt(dx * dx + dy * dy + dz * dz);
            }
        }
        return e;
    }

    public static String run(String[] arguments) {
        int steps = Integer.parseInt(arguments[0]);
        Body[] bodies = new Body[START.length];
        for (int i = 0; i < bodies.length; i++) {
            double[] s = START[i];
            Body body = bodies[i] = new Body();
            body.x = s[0];
            body.y = s[1];
            body.z = s[2];
            body.vx = s[3] * 365.24;
            body.vy = s[4] * 365.24;
            body.vz = s[5] * 365.24;
            body.mass = s[6] * (4 * Math.PI * Math.PI);
        }
        for (int i = 0; i < steps; i++) {
            advance(bodies, 0.01);
        }
        return String.format(java.util.Locale.ROOT, "%.9f\n", energy(bodies));
    }
}
