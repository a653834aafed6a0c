package io.github.fettle.jvm;

/**
 * The floating-point instructions of the interpreter.
 *
 * <p>Java rounds to nearest, always: other rounding modes hold for conversions to integers, not
 * for arithmetic. NaNs are MIPS's old ones, whose quiet bit is 0.
 */
final class Fpu {
    private static final int NAN = 0x7fbf_ffff;
    private static final long NAN_LONG = 0x7ff7_ffff_ffff_ffffL;
    private static final int QUIET_BIT = 1 << 22;
    private static final long QUIET_BIT_LONG = 1L << 51;

    private Fpu() {}

    static void step(GuestThread t, Cpu cpu, int code, Interpreter interpreter) {
        int rt = code >> 16 & 31;
        int fs = code >> 11 & 31;
        switch (code >> 21 & 31) {
            case 0: // mfc1
                cpu.r[rt] = cpu.f[fs];
                break;
            case 2: // cfc1
                cpu.r[rt] = control(cpu, fs);
                break;
            case 3: // mfhc1
                cpu.r[rt] = cpu.f[fs | 1];
                break;
            case 4: // mtc1
                cpu.f[fs] = cpu.r[rt];
                break;
            case 6: // ctc1
                setControl(cpu, fs, cpu.r[rt]);
                break;
            case 7: // mthc1
                cpu.f[fs | 1] = cpu.r[rt];
                break;
            case 8:
                branch(cpu, code);
                break;
            case 16:
                if (!single(cpu, code)) {
                    interpreter.illegal(t, cpu);
                }
                break;
            case 17:
                if (!real(cpu, code)) {
                    interpreter.illegal(t, cpu);
                }
                break;
            case 20:
                if (!fromWord(cpu, code, cpu.f[fs])) {
                    interpreter.illegal(t, cpu);
                }
                break;
            case 21:
                if (!fromWord(cpu, code, cpu.bits(fs))) {
                    interpreter.illegal(t, cpu);
                }
                break;
            default:
                interpreter.illegal(t, cpu);
        }
    }

    private static int control(Cpu cpu, int register) {
        switch (register) {
            case 0:
                return 0x0030_0000 | 0x9300; // single, double; a 24Kf as qemu has it
            case 25:
                return cpu.control >>> 24 & 0xfe | cpu.control >>> 23 & 1;
            case 26:
                return cpu.control & 0x0003_f07c;
            case 28:
                return cpu.control & 0xf83 | cpu.control >>> 22 & 4;
            case 31:
                return cpu.control;
            default:
                return 0;
        }
    }

    private static void setControl(Cpu cpu, int register, int value) {
        if (register == 31) {
            cpu.control = value & 0xff83_ffff;
        } else if (register == 25) {
            cpu.control = cpu.control & ~0xfe80_0000 | (value & 0xfe) << 24 | (value & 1) << 23;
        } else if (register == 26) {
            cpu.control = cpu.control & ~0x0003_f07c | value & 0x0003_f07c;
        } else if (register == 28) {
            cpu.control = cpu.control & ~0x0100_0f83 | value & 0xf83 | (value & 4) << 22;
        }
    }

    private static void branch(Cpu cpu, int code) {
        boolean taken = cpu.condition(code >> 18 & 7) == ((code >> 16 & 1) != 0);
        boolean likely = (code >> 17 & 1) != 0;
        if (taken) {
            cpu.next = cpu.current + 4 + ((short) code << 2);
            cpu.inDelaySlot = true;
        } else if (likely) {
            cpu.pc = cpu.next;
            cpu.next += 4;
        } else {
            cpu.inDelaySlot = true;
        }
    }

    private static boolean single(Cpu cpu, int code) {
        int fs = code >> 11 & 31;
        int ft = code >> 16 & 31;
        int fd = code >> 6 & 31;
        int function = code & 63;
        float a = cpu.single(fs);
        float b = cpu.single(ft);
        switch (function) {
            case 0:
                cpu.f[fd] = result(a + b, cpu.f[fs], cpu.f[ft]);
                return true;
            case 1:
                cpu.f[fd] = result(a - b, cpu.f[fs], cpu.f[ft]);
                return true;
            case 2:
                cpu.f[fd] = result(a * b, cpu.f[fs], cpu.f[ft]);
                return true;
            case 3:
                cpu.f[fd] = result(a / b, cpu.f[fs], cpu.f[ft]);
                return true;
            case 4:
                cpu.f[fd] = result((float) Math.sqrt(a), cpu.f[fs], cpu.f[fs]);
                return true;
            case 5:
                cpu.f[fd] = cpu.f[fs] & 0x7fff_ffff;
                return true;
            case 6:
                cpu.f[fd] = cpu.f[fs];
                return true;
            case 7:
                cpu.f[fd] = cpu.f[fs] ^ 0x8000_0000;
                return true;
            case 17:
            case 18:
            case 19:
                if (moves(cpu, code)) {
                    cpu.f[fd] = cpu.f[fs];
                }
                return true;
            case 21:
                cpu.f[fd] = result(1 / a, cpu.f[fs], cpu.f[fs]);
                return true;
            case 22:
                cpu.f[fd] = result((float) (1 / Math.sqrt(a)), cpu.f[fs], cpu.f[fs]);
                return true;
            case 33: // cvt.d.s
                cpu.bits(fd, widened(cpu.f[fs]));
                return true;
            default:
                return toInteger(cpu, function, fd, a) || compare(cpu, code, a, b);
        }
    }

    private static boolean real(Cpu cpu, int code) {
        int fs = code >> 11 & 31;
        int ft = code >> 16 & 31;
        int fd = code >> 6 & 31;
        int function = code & 63;
        double a = cpu.real(fs);
        double b = cpu.real(ft);
        switch (function) {
            case 0:
                cpu.bits(fd, result(a + b, cpu.bits(fs), cpu.bits(ft)));
                return true;
            case 1:
                cpu.bits(fd, result(a - b, cpu.bits(fs), cpu.bits(ft)));
                return true;
            case 2:
                cpu.bits(fd, result(a * b, cpu.bits(fs), cpu.bits(ft)));
                return true;
            case 3:
                cpu.bits(fd, result(a / b, cpu.bits(fs), cpu.bits(ft)));
                return true;
            case 4:
                cpu.bits(fd, result(Math.sqrt(a), cpu.bits(fs), cpu.bits(fs)));
                return true;
            case 5:
                cpu.bits(fd, cpu.bits(fs) & Long.MAX_VALUE);
                return true;
            case 6:
                cpu.bits(fd, cpu.bits(fs));
                return true;
            case 7:
                cpu.bits(fd, cpu.bits(fs) ^ Long.MIN_VALUE);
                return true;
            case 17:
            case 18:
            case 19:
                if (moves(cpu, code)) {
                    cpu.bits(fd, cpu.bits(fs));
                }
                return true;
            case 21:
                cpu.bits(fd, result(1 / a, cpu.bits(fs), cpu.bits(fs)));
                return true;
            case 22:
                cpu.bits(fd, result(1 / Math.sqrt(a), cpu.bits(fs), cpu.bits(fs)));
                return true;
            case 32: // cvt.s.d
                cpu.f[fd] = narrowed(cpu.bits(fs));
                return true;
            default:
                return toInteger(cpu, function, fd, a) || compare(cpu, code, a, b);
        }
    }

    /** movf/movt, movz, movn. */
    private static boolean moves(Cpu cpu, int code) {
        switch (code & 63) {
            case 17:
                return cpu.condition(code >> 18 & 7) == ((code >> 16 & 1) != 0);
            case 18:
                return cpu.r[code >> 16 & 31] == 0;
            default:
                return cpu.r[code >> 16 & 31] != 0;
        }
    }

    private static boolean fromWord(Cpu cpu, int code, long value) {
        int fd = code >> 6 & 31;
        switch (code & 63) {
            case 32:
                cpu.single(fd, (float) value);
                return true;
            case 33:
                cpu.real(fd, (double) value);
                return true;
            default:
                return false;
        }
    }

    /** Rounding modes: 0 nearest, 1 to zero, 2 up, 3 down. */
    private static boolean toInteger(Cpu cpu, int function, int fd, double value) {
        int mode;
        boolean wide;
        if (function >= 8 && function <= 15) {
            mode = function & 3;
            wide = function < 12;
        } else if (function == 36 || function == 37) {
            mode = cpu.control & 3;
            wide = function == 37;
        } else {
            return false;
        }
        double rounded = round(value, mode);
        if (wide) {
            boolean fits = rounded >= -0x1p63 && rounded < 0x1p63;
            cpu.bits(fd, fits ? (long) rounded : Long.MAX_VALUE);
        } else {
            boolean fits = rounded >= -0x1p31 && rounded < 0x1p31;
            cpu.f[fd] = fits ? (int) rounded : Integer.MAX_VALUE;
        }
        return true;
    }

    private static double round(double value, int mode) {
        switch (mode) {
            case 0:
                return Math.rint(value);
            case 1:
                return value < 0 ? Math.ceil(value) : Math.floor(value);
            case 2:
                return Math.ceil(value);
            default:
                return Math.floor(value);
        }
    }

    /** Bits of the condition: 1 unordered, 2 equal, 4 less. */
    private static boolean compare(Cpu cpu, int code, double a, double b) {
        if ((code & 63) < 48) {
            return false;
        }
        boolean unordered = Double.isNaN(a) || Double.isNaN(b);
        boolean holds = (code & 1) != 0 && unordered
                || (code & 2) != 0 && a == b
                || (code & 4) != 0 && a < b;
        cpu.condition(code >> 8 & 7, holds);
        return true;
    }

    /** Which NaN comes out: a quiet operand, or the default one. */
    private static int result(float value, int a, int b) {
        if (!Float.isNaN(value)) {
            return Float.floatToRawIntBits(value);
        }
        boolean signalling = signals(a) || signals(b);
        return !signalling && isNan(a) ? a : !signalling && isNan(b) ? b : NAN;
    }

    private static long result(double value, long a, long b) {
        if (!Double.isNaN(value)) {
            return Double.doubleToRawLongBits(value);
        }
        boolean signalling = signals(a) || signals(b);
        return !signalling && isNan(a) ? a : !signalling && isNan(b) ? b : NAN_LONG;
    }

    private static boolean isNan(int bits) {
        return (bits & 0x7fff_ffff) > 0x7f80_0000;
    }

    private static boolean isNan(long bits) {
        return (bits & Long.MAX_VALUE) > 0x7ff0_0000_0000_0000L;
    }

    private static boolean signals(int bits) {
        return isNan(bits) && (bits & QUIET_BIT) != 0;
    }

    private static boolean signals(long bits) {
        return isNan(bits) && (bits & QUIET_BIT_LONG) != 0;
    }

    private static long widened(int bits) {
        if (!isNan(bits)) {
            return Double.doubleToRawLongBits(Float.intBitsToFloat(bits));
        }
        return signals(bits)
                ? NAN_LONG
                : (long) (bits & 0x8000_0000) << 32
                        | 0x7ff0_0000_0000_0000L
                        | (long) (bits & 0x007f_ffff) << 29;
    }

    private static int narrowed(long bits) {
        if (!isNan(bits)) {
            return Float.floatToRawIntBits((float) Double.longBitsToDouble(bits));
        }
        int fraction = (int) (bits >>> 29) & 0x007f_ffff;
        return signals(bits) || fraction == 0
                ? NAN
                : (int) (bits >>> 32) & 0x8000_0000 | 0x7f80_0000 | fraction;
    }

    /** COP1X: indexed accesses, and multiply-add, which rounds twice on this machine. */
    static void indexed(GuestThread t, Cpu cpu, int code) {
        int fd = code >> 6 & 31;
        int fs = code >> 11 & 31;
        int address = cpu.r[code >> 21 & 31] + cpu.r[code >> 16 & 31];
        switch (code & 63) {
            case 0:
                cpu.f[fd] = t.load(Interpreter.checked(address));
                break;
            case 1:
                cpu.bits(fd, t.loadLong(Interpreter.checked(address)));
                break;
            case 5: // luxc1 ignores the low bits
                cpu.bits(fd, t.loadLong(Interpreter.checked(address & ~7)));
                break;
            case 8:
                t.store(Interpreter.checked(address), cpu.f[fs]);
                break;
            case 9:
                t.storeLong(Interpreter.checked(address), cpu.bits(fs));
                break;
            case 13: // suxc1
                t.storeLong(Interpreter.checked(address & ~7), cpu.bits(fs));
                break;
            case 15: // prefx
                break;
            default:
                multiplyAdd(cpu, code, fd, fs);
        }
    }

    private static void multiplyAdd(Cpu cpu, int code, int fd, int fs) {
        int ft = code >> 16 & 31;
        int fr = code >> 21 & 31;
        boolean subtracts = (code & 8) != 0;
        boolean negates = (code & 16) != 0;
        if ((code & 7) == 0) {
            int product = result(cpu.single(fs) * cpu.single(ft), cpu.f[fs], cpu.f[ft]);
            float a = Float.intBitsToFloat(product);
            float b = cpu.single(fr);
            int sum = result(subtracts ? a - b : a + b, product, cpu.f[fr]);
            cpu.f[fd] = negates && !isNan(sum) ? sum ^ 0x8000_0000 : sum;
        } else {
            long product = result(cpu.real(fs) * cpu.real(ft), cpu.bits(fs), cpu.bits(ft));
            double a = Double.longBitsToDouble(product);
            double b = cpu.real(fr);
            long sum = result(subtracts ? a - b : a + b, product, cpu.bits(fr));
            cpu.bits(fd, negates && !isNan(sum) ? sum ^ Long.MIN_VALUE : sum);
        }
    }
}
