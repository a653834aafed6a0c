package io.github.fettle.jvm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;

/**
 * Interprets MIPS32r2 code: the oracle for translated code, over the same kernel.
 *
 * <p>Written to be compared with the manual, not to be fast. A call of the guest by address is a
 * nested run that ends when the guest returns to {@link #RETURN}.
 */
public final class Interpreter extends GuestCode {
    /** A return address that no memory has. */
    private static final int RETURN = 0xffff_fff0;

    /** As natively, the lowest pages are never mapped: a null pointer faults. */
    private static final int LOWEST = 0x10000;

    /** Instructions between two looks at what other threads want. */
    private static final int POLL_PERIOD = 1000;

    private final boolean bigEndian;

    Interpreter(boolean bigEndian) {
        this.bigEndian = bigEndian;
    }

    /** Runs an ELF file: {@code java io.github.fettle.jvm.Interpreter FILE ARGUMENTS...}. */
    public static void main(String[] arguments) throws IOException {
        if (arguments.length == 0) {
            System.err.println("usage: java io.github.fettle.jvm.Interpreter FILE [ARGUMENTS...]");
            System.exit(2);
        }
        int status;
        try {
            List<String> rest = Arrays.asList(arguments).subList(1, arguments.length);
            ElfImage image = new ElfImage(Files.readAllBytes(Paths.get(arguments[0])));
            Options options = Options.program(rest).name(arguments[0]);
            status = Launcher.run(new Interpreter(image.bigEndian), image, options);
        } catch (NoSuchFileException e) {
            System.err.println("fettle: " + arguments[0] + ": there is no such file");
            status = 126;
        } catch (IllegalArgumentException e) {
            System.err.println("fettle: " + arguments[0] + ": " + e.getMessage());
            status = 126;
        }
        System.exit(status);
    }

    @Override
    public boolean bigEndian() {
        return bigEndian;
    }

    @Override
    public long call(GuestThread t, int address, int sp, int a0, int a1, int a2, int a3) {
        if (t.registers == null) {
            t.registers = new Cpu();
        }
        Cpu cpu = (Cpu) t.registers;
        Cpu before = cpu.copy();
        cpu.r[4] = a0;
        cpu.r[5] = a1;
        cpu.r[6] = a2;
        cpu.r[7] = a3;
        cpu.r[Cpu.SP] = sp;
        cpu.r[Cpu.T9] = address;
        cpu.r[Cpu.RA] = RETURN;
        cpu.bits(12, t.f12);
        cpu.bits(14, t.f14);
        cpu.jump(address);
        run(t, cpu);
        t.f0 = cpu.bits(0);
        long result = (long) cpu.r[Cpu.V1] << 32 | cpu.r[Cpu.V0] & 0xffff_ffffL;
        cpu.set(before);
        return result;
    }

    private void run(GuestThread t, Cpu cpu) {
        while (true) {
            try {
                steps(t, cpu);
                return;
            } catch (IndexOutOfBoundsException e) {
                fault(t, cpu);
            }
        }
    }

    /** Runs the guest's handler with the registers as they were before the instruction. */
    private void fault(GuestThread t, Cpu cpu) {
        int at = cpu.current;
        int address = at;
        if (at >= 0 && at <= t.memory.length - 4) {
            int code = t.load(at);
            boolean indexed = code >>> 26 == 0x13;
            int offset = indexed ? cpu.r[code >> 16 & 31] : (short) code;
            address = cpu.r[code >> 21 & 31] + offset;
        }
        int restart = cpu.inDelaySlot ? at - 4 : at;
        cpu.jump(restart);
        // 1: not mapped.
        t.guest.signals.synchronous(t, Signals.SEGV, 1, address, restart, cpu.r[Cpu.SP]);
    }

    private void steps(GuestThread t, Cpu cpu) {
        int count = 0;
        while (true) {
            int pc = cpu.pc;
            if (pc < 0) {
                if (pc == RETURN) {
                    return;
                }
                callback(t, cpu);
                continue;
            }
            if (++count > POLL_PERIOD && !cpu.inDelaySlot) {
                count = 0;
                Fences.fullFence();
                if (t.guest.poll) {
                    Signals.poll(t, cpu.r[Cpu.SP]);
                }
            }
            cpu.current = pc;
            int code = t.load(pc);
            cpu.pc = cpu.next;
            cpu.next += 4;
            boolean slot = cpu.inDelaySlot;
            step(t, cpu, code);
            if (slot) {
                cpu.inDelaySlot = false;
            }
            cpu.r[0] = 0;
        }
    }

    private static void callback(GuestThread t, Cpu cpu) {
        int address = cpu.pc;
        int[] r = cpu.r;
        long result;
        t.f12 = cpu.bits(12);
        t.f14 = cpu.bits(14);
        try {
            result = Callbacks.dispatch(t, address, r[Cpu.SP], r[4], r[5], r[6], r[7]);
        } catch (IndexOutOfBoundsException e) {
            cpu.current = address;
            throw e;
        }
        r[Cpu.V0] = (int) result;
        r[Cpu.V1] = (int) (result >>> 32);
        cpu.bits(0, t.f0);
        cpu.jump(r[Cpu.RA]);
    }

    private static void branch(Cpu cpu, boolean taken, int code) {
        if (taken) {
            cpu.next = cpu.current + 4 + ((short) code << 2);
        }
        cpu.inDelaySlot = true;
    }

    /** Branch likely: the delay slot runs only if the branch is taken. */
    private static void branchLikely(Cpu cpu, boolean taken, int code) {
        if (taken) {
            branch(cpu, true, code);
        } else {
            cpu.pc = cpu.next;
            cpu.next += 4;
        }
    }

    private static void jumpAfterSlot(Cpu cpu, int target) {
        cpu.next = target;
        cpu.inDelaySlot = true;
    }

    static int checked(int address) {
        if (address >= 0 && address < LOWEST) {
            throw new IndexOutOfBoundsException();
        }
        return address;
    }

    private void step(GuestThread t, Cpu cpu, int code) {
        int[] r = cpu.r;
        int rs = r[code >> 21 & 31];
        int rt = code >> 16 & 31;
        int immediate = (short) code;
        switch (code >>> 26) {
            case 0:
                special(t, cpu, code);
                break;
            case 1:
                registerImmediate(t, cpu, code);
                break;
            case 2:
                jumpAfterSlot(cpu, cpu.current + 4 & 0xf000_0000 | (code & 0x3ff_ffff) << 2);
                break;
            case 3:
                r[31] = cpu.current + 8;
                jumpAfterSlot(cpu, cpu.current + 4 & 0xf000_0000 | (code & 0x3ff_ffff) << 2);
                break;
            case 4:
                branch(cpu, rs == r[rt], code);
                break;
            case 5:
                branch(cpu, rs != r[rt], code);
                break;
            case 6:
                branch(cpu, rs <= 0, code);
                break;
            case 7:
                branch(cpu, rs > 0, code);
                break;
            case 8: // addi
                r[rt] = overflow(t, cpu, (long) rs + immediate);
                break;
            case 9:
                r[rt] = rs + immediate;
                break;
            case 10:
                r[rt] = rs < immediate ? 1 : 0;
                break;
            case 11:
                r[rt] = Integer.compareUnsigned(rs, immediate) < 0 ? 1 : 0;
                break;
            case 12:
                r[rt] = rs & immediate & 0xffff;
                break;
            case 13:
                r[rt] = rs | immediate & 0xffff;
                break;
            case 14:
                r[rt] = rs ^ immediate & 0xffff;
                break;
            case 15:
                r[rt] = code << 16;
                break;
            case 17:
                Fpu.step(t, cpu, code, this);
                break;
            case 19:
                Fpu.indexed(t, cpu, code);
                break;
            case 20:
                branchLikely(cpu, rs == r[rt], code);
                break;
            case 21:
                branchLikely(cpu, rs != r[rt], code);
                break;
            case 22:
                branchLikely(cpu, rs <= 0, code);
                break;
            case 23:
                branchLikely(cpu, rs > 0, code);
                break;
            case 28:
                special2(t, cpu, code);
                break;
            case 31:
                special3(t, cpu, code);
                break;
            case 47: // cache
            case 51: // pref
                break;
            default:
                access(t, cpu, code, rs + immediate, rt);
        }
    }

    private void access(GuestThread t, Cpu cpu, int code, int address, int rt) {
        int[] r = cpu.r;
        byte[] memory = t.memory;
        checked(address);
        switch (code >>> 26) {
            case 32:
                r[rt] = memory[address];
                break;
            case 33:
                r[rt] = t.loadShort(address);
                break;
            case 34:
                r[rt] = Unaligned.loadLeft(t, address, r[rt]);
                break;
            case 35:
                r[rt] = t.load(address);
                break;
            case 36:
                r[rt] = memory[address] & 0xff;
                break;
            case 37:
                r[rt] = t.loadShort(address) & 0xffff;
                break;
            case 38:
                r[rt] = Unaligned.loadRight(t, address, r[rt]);
                break;
            case 40:
                memory[address] = (byte) r[rt];
                break;
            case 41:
                t.storeShort(address, r[rt]);
                break;
            case 42:
                Unaligned.storeLeft(t, address, r[rt]);
                break;
            case 43:
                t.store(address, r[rt]);
                break;
            case 46:
                Unaligned.storeRight(t, address, r[rt]);
                break;
            case 48: // ll
                Fences.fullFence();
                cpu.linkedAddress = address;
                cpu.linkedValue = t.load(address);
                r[rt] = cpu.linkedValue;
                break;
            case 49:
                cpu.f[rt] = t.load(address);
                break;
            case 53:
                cpu.bits(rt, t.loadLong(address));
                break;
            case 56: // sc
                boolean linked = cpu.linkedAddress == address;
                r[rt] = linked && t.compareAndSet(address, cpu.linkedValue, r[rt]) ? 1 : 0;
                cpu.linkedAddress = -1;
                break;
            case 57:
                t.store(address, cpu.f[rt]);
                break;
            case 61:
                t.storeLong(address, cpu.bits(rt));
                break;
            default:
                illegal(t, cpu);
        }
    }

    void illegal(GuestThread t, Cpu cpu) {
        int at = cpu.current;
        cpu.jump(at);
        // 1: illegal operation code.
        t.guest.signals.synchronous(t, Signals.ILL, 1, at, at, cpu.r[Cpu.SP]);
    }

    private static int overflow(GuestThread t, Cpu cpu, long value) {
        if (value != (int) value) {
            trap(t, cpu, 6);
        }
        return (int) value;
    }

    private static void trap(GuestThread t, Cpu cpu, int code) {
        throw Signals.trap(t, code, cpu.r[Cpu.SP]);
    }

    private static void trapIf(GuestThread t, Cpu cpu, boolean holds, int code) {
        if (holds) {
            trap(t, cpu, code);
        }
    }

    private void special(GuestThread t, Cpu cpu, int code) {
        int[] r = cpu.r;
        int rs = r[code >> 21 & 31];
        int rt = r[code >> 16 & 31];
        int rd = code >> 11 & 31;
        int shift = code >> 6 & 31;
        switch (code & 63) {
            case 0:
                r[rd] = rt << shift;
                break;
            case 1: // movf, movt
                if (cpu.condition(code >> 18 & 7) == ((code >> 16 & 1) != 0)) {
                    r[rd] = rs;
                }
                break;
            case 2:
                r[rd] = (code >> 21 & 1) != 0 ? Integer.rotateRight(rt, shift) : rt >>> shift;
                break;
            case 3:
                r[rd] = rt >> shift;
                break;
            case 4:
                r[rd] = rt << rs;
                break;
            case 6:
                r[rd] = (code >> 6 & 1) != 0 ? Integer.rotateRight(rt, rs) : rt >>> rs;
                break;
            case 7:
                r[rd] = rt >> rs;
                break;
            case 8:
                jumpAfterSlot(cpu, rs);
                break;
            case 9:
                r[rd] = cpu.current + 8;
                jumpAfterSlot(cpu, rs);
                break;
            case 10:
                r[rd] = rt == 0 ? rs : r[rd];
                break;
            case 11:
                r[rd] = rt != 0 ? rs : r[rd];
                break;
            case 12:
                systemCall(t, cpu);
                break;
            case 13:
                trap(t, cpu, code >> 16 & 0x3ff);
                break;
            case 15:
                Fences.fullFence();
                break;
            case 16:
                r[rd] = cpu.hi;
                break;
            case 17:
                cpu.hi = rs;
                break;
            case 18:
                r[rd] = cpu.lo;
                break;
            case 19:
                cpu.lo = rs;
                break;
            case 24:
                cpu.product((long) rs * rt);
                break;
            case 25:
                cpu.product((rs & 0xffff_ffffL) * (rt & 0xffff_ffffL));
                break;
            case 26:
                divide(cpu, rs, rt);
                break;
            case 27:
                divideUnsigned(cpu, rs, rt);
                break;
            default:
                arithmetic(t, cpu, code, rs, rt, rd);
        }
    }

    /** By zero: anything may come out, and qemu's choice is as good as any. */
    private static void divide(Cpu cpu, int a, int b) {
        if (b != 0) {
            cpu.lo = a / b;
            cpu.hi = a % b;
        } else {
            cpu.lo = a;
            cpu.hi = 0;
        }
    }

    private static void divideUnsigned(Cpu cpu, int a, int b) {
        if (b != 0) {
            cpu.lo = Integer.divideUnsigned(a, b);
            cpu.hi = Integer.remainderUnsigned(a, b);
        } else {
            cpu.lo = a;
            cpu.hi = 0;
        }
    }

    private void arithmetic(GuestThread t, Cpu cpu, int code, int rs, int rt, int rd) {
        int[] r = cpu.r;
        int trap = code >> 6 & 0x3ff;
        switch (code & 63) {
            case 32:
                r[rd] = overflow(t, cpu, (long) rs + rt);
                break;
            case 33:
                r[rd] = rs + rt;
                break;
            case 34:
                r[rd] = overflow(t, cpu, (long) rs - rt);
                break;
            case 35:
                r[rd] = rs - rt;
                break;
            case 36:
                r[rd] = rs & rt;
                break;
            case 37:
                r[rd] = rs | rt;
                break;
            case 38:
                r[rd] = rs ^ rt;
                break;
            case 39:
                r[rd] = ~(rs | rt);
                break;
            case 42:
                r[rd] = rs < rt ? 1 : 0;
                break;
            case 43:
                r[rd] = Integer.compareUnsigned(rs, rt) < 0 ? 1 : 0;
                break;
            case 48:
                trapIf(t, cpu, rs >= rt, trap);
                break;
            case 49:
                trapIf(t, cpu, Integer.compareUnsigned(rs, rt) >= 0, trap);
                break;
            case 50:
                trapIf(t, cpu, rs < rt, trap);
                break;
            case 51:
                trapIf(t, cpu, Integer.compareUnsigned(rs, rt) < 0, trap);
                break;
            case 52:
                trapIf(t, cpu, rs == rt, trap);
                break;
            case 54:
                trapIf(t, cpu, rs != rt, trap);
                break;
            default:
                illegal(t, cpu);
        }
    }

    private static void systemCall(GuestThread t, Cpu cpu) {
        int[] r = cpu.r;
        int number = r[Cpu.V0];
        long result = Kernel.call(t, number, r[4], r[5], r[6], r[7], r[Cpu.SP]);
        r[Cpu.V0] = (int) result;
        r[Cpu.A3] = (int) (result >>> 32);
        if (number == 4042 || number >= Imports.FIRST) { // pipe, and calls of Java
            r[Cpu.V1] = t.v1;
        }
    }

    private void registerImmediate(GuestThread t, Cpu cpu, int code) {
        int rs = cpu.r[code >> 21 & 31];
        int immediate = (short) code;
        int kind = code >> 16 & 31;
        if (kind >= 16 && kind <= 19) {
            cpu.r[31] = cpu.current + 8;
        }
        switch (kind) {
            case 0:
            case 16:
                branch(cpu, rs < 0, code);
                break;
            case 1:
            case 17:
                branch(cpu, rs >= 0, code);
                break;
            case 2:
            case 18:
                branchLikely(cpu, rs < 0, code);
                break;
            case 3:
            case 19:
                branchLikely(cpu, rs >= 0, code);
                break;
            case 8:
                trapIf(t, cpu, rs >= immediate, 0);
                break;
            case 9:
                trapIf(t, cpu, Integer.compareUnsigned(rs, immediate) >= 0, 0);
                break;
            case 10:
                trapIf(t, cpu, rs < immediate, 0);
                break;
            case 11:
                trapIf(t, cpu, Integer.compareUnsigned(rs, immediate) < 0, 0);
                break;
            case 12:
                trapIf(t, cpu, rs == immediate, 0);
                break;
            case 14:
                trapIf(t, cpu, rs != immediate, 0);
                break;
            case 31: // synci: code is not translated anew
                break;
            default:
                illegal(t, cpu);
        }
    }

    private void special2(GuestThread t, Cpu cpu, int code) {
        int rs = cpu.r[code >> 21 & 31];
        int rt = cpu.r[code >> 16 & 31];
        int rd = code >> 11 & 31;
        switch (code & 63) {
            case 0:
                cpu.product(cpu.product() + (long) rs * rt);
                break;
            case 1:
                cpu.product(cpu.product() + (rs & 0xffff_ffffL) * (rt & 0xffff_ffffL));
                break;
            case 2:
                cpu.r[rd] = rs * rt;
                break;
            case 4:
                cpu.product(cpu.product() - (long) rs * rt);
                break;
            case 5:
                cpu.product(cpu.product() - (rs & 0xffff_ffffL) * (rt & 0xffff_ffffL));
                break;
            case 32:
                cpu.r[rd] = Integer.numberOfLeadingZeros(rs);
                break;
            case 33:
                cpu.r[rd] = Integer.numberOfLeadingZeros(~rs);
                break;
            default:
                illegal(t, cpu);
        }
    }

    private void special3(GuestThread t, Cpu cpu, int code) {
        int rs = cpu.r[code >> 21 & 31];
        int target = code >> 16 & 31;
        int rt = cpu.r[target];
        int rd = code >> 11 & 31;
        int position = code >> 6 & 31;
        switch (code & 63) {
            case 0: // ext
                cpu.r[target] = rs >>> position & mask(rd + 1);
                break;
            case 4: // ins
                int bits = mask(rd - position + 1) << position;
                cpu.r[target] = rt & ~bits | rs << position & bits;
                break;
            case 32:
                cpu.r[rd] = bytes(t, cpu, position, rt);
                break;
            case 59: // rdhwr
                cpu.r[target] = hardware(t, rd);
                break;
            default:
                illegal(t, cpu);
        }
    }

    private static int mask(int size) {
        return size >= 32 ? -1 : (1 << size) - 1;
    }

    private int bytes(GuestThread t, Cpu cpu, int kind, int value) {
        switch (kind) {
            case 2: // wsbh
                return (value & 0x00ff_00ff) << 8 | value >>> 8 & 0x00ff_00ff;
            case 16:
                return (byte) value;
            case 24:
                return (short) value;
            default:
                illegal(t, cpu);
                return 0;
        }
    }

    private static int hardware(GuestThread t, int register) {
        switch (register) {
            case 29:
                return t.tls;
            case 1: // step of synci: nothing to do
                return 0;
            case 2: // cycle counter
                return (int) System.nanoTime();
            case 3:
                return 1;
            default:
                return 0;
        }
    }
}
