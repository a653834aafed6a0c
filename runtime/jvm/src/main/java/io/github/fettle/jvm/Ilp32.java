package io.github.fettle.jvm;

/**
 * The calling conventions {@code ilp32}, {@code ilp32f} and {@code ilp32d} of 32-bit RISC-V: eight
 * integer registers, behind them words at the stack pointer, and eight floating-point registers for
 * numbers that fit there. Structures of more than eight bytes are passed by reference, unless all of
 * them is one or two numbers of which registers hold each.
 */
final class Ilp32 extends Abi {
    private static final int REGISTERS = 8;
    private static final int STACK_ALIGNMENT = 16;

    /** The size of floating-point numbers that are passed in registers of their own; or 0. */
    private final int floatSize;

    Ilp32(int floatSize) {
        this.floatSize = floatSize;
    }

    /** The members of a structure if each has a register, one of them for floating point; or null. */
    private Class<?>[] numbers(Class<?> type) {
        Class<?>[] members = Copies.members(type);
        int floating = 0;
        for (Class<?> member : members) {
            boolean isFloating = isFloating(member);
            floating += isFloating ? 1 : 0;
            if (Copies.memberSize(member) > (isFloating ? floatSize : 4)) {
                return null;
            }
        }
        return floating > 0 && members.length <= 2 ? members : null;
    }

    private static boolean isFloating(Class<?> type) {
        return type == float.class || type == double.class;
    }

    /** The integer that a member of a structure is in a register. */
    private static int integer(GuestThread t, Class<?> member, int at) {
        if (member == boolean.class || member == byte.class) {
            return t.memory[at];
        } else if (member == short.class) {
            return (short) t.loadShort(at);
        } else if (member == char.class) {
            return (char) t.loadShort(at);
        }
        return t.load(at);
    }

    @Override
    Writer writer(GuestThread t) {
        return new Words(t);
    }

    @Override
    Reader reader(GuestThread t, int sp, int a0, int a1, int a2, int a3) {
        return new Arguments(t, sp, a0, a1, a2, a3);
    }

    private final class Words extends Writer {
        private final GuestThread t;
        private int floats;

        Words(GuestThread t) {
            this.t = t;
        }

        @Override
        void addInt(int value) {
            word(value);
        }

        /** In two registers, in the last one and on the stack, or on the stack at a multiple of eight. */
        @Override
        void addLong(long value) {
            if (count > REGISTERS && count % 2 != 0) {
                word(0);
            }
            word((int) value);
            word((int) (value >>> 32));
        }

        @Override
        void addFloat(float value) {
            int bits = Float.floatToRawIntBits(value);
            if (floatSize >= 4 && floats < REGISTERS) {
                setFloat(bits & 0xffff_ffffL);
            } else {
                word(bits);
            }
        }

        @Override
        void addDouble(double value) {
            long bits = Double.doubleToRawLongBits(value);
            if (floatSize >= 8 && floats < REGISTERS) {
                setFloat(bits);
            } else {
                addLong(bits);
            }
        }

        @Override
        void addStructure(Class<?> type, int address) {
            int at = t.guest.index(address);
            int size = Copies.size(type);
            if (addNumbers(type, at)) {
                return;
            } else if (size > 8) {
                addInt(address);
            } else if (Copies.alignment(type) == 8) {
                addLong(t.loadLong(at));
            } else {
                for (int i = 0; i < size; i += 4) {
                    addInt(t.load(at + i));
                }
            }
        }

        /** Adds a structure's members, if there are registers for them. */
        private boolean addNumbers(Class<?> type, int structure) {
            Class<?>[] members = numbers(type);
            if (members == null) {
                return false;
            }
            int floating = 0;
            for (Class<?> member : members) {
                floating += isFloating(member) ? 1 : 0;
            }
            int integers = members.length - floating;
            if (floats + floating > REGISTERS || integers > 0 && count + integers > REGISTERS) {
                return false;
            }
            int at = structure;
            for (Class<?> member : members) {
                int size = Copies.memberSize(member);
                at = at + size - 1 & -size;
                if (member == double.class) {
                    setFloat(t.loadLong(at));
                } else if (member == float.class) {
                    setFloat(t.load(at) & 0xffff_ffffL);
                } else {
                    addInt(integer(t, member, at));
                }
                at += size;
            }
            return true;
        }

        private void setFloat(long bits) {
            switch (floats++) {
                case 0:
                    t.f10 = bits;
                    break;
                case 1:
                    t.f11 = bits;
                    break;
                case 2:
                    t.f12 = bits;
                    break;
                case 3:
                    t.f13 = bits;
                    break;
                case 4:
                    t.f14 = bits;
                    break;
                case 5:
                    t.f15 = bits;
                    break;
                case 6:
                    t.f16 = bits;
                    break;
                default:
                    t.f17 = bits;
                    break;
            }
        }
    }

    private final class Arguments extends Reader {
        private final GuestThread t;
        private final int sp;
        private final int[] integers;
        private final long[] floating;
        private int count;
        private int floats;

        Arguments(GuestThread t, int sp, int a0, int a1, int a2, int a3) {
            this.t = t;
            this.sp = t.guest.index(sp);
            integers = new int[] {a0, a1, a2, a3, t.a4, t.a5, t.a6, t.a7};
            floating = new long[] {t.f10, t.f11, t.f12, t.f13, t.f14, t.f15, t.f16, t.f17};
        }

        @Override
        int nextInt() {
            int index = count++;
            return index < REGISTERS ? integers[index] : t.load(sp + (index - REGISTERS) * 4);
        }

        @Override
        long nextLong() {
            if (count > REGISTERS) {
                count += count % 2;
            }
            int first = nextInt();
            return t.pair(first, nextInt());
        }

        @Override
        float nextFloat() {
            boolean inRegister = floatSize >= 4 && floats < REGISTERS;
            return Float.intBitsToFloat(inRegister ? (int) floating[floats++] : nextInt());
        }

        @Override
        double nextDouble() {
            boolean inRegister = floatSize >= 8 && floats < REGISTERS;
            return Double.longBitsToDouble(inRegister ? floating[floats++] : nextLong());
        }
    }

    @Override
    int place(GuestThread t, int top, int[] words) {
        int onStack = Math.max(0, words.length - REGISTERS);
        int sp = top - onStack * 4 & -STACK_ALIGNMENT;
        for (int i = 0; i < onStack; i++) {
            t.store(t.guest.index(sp) + i * 4, words[REGISTERS + i]);
        }
        int[] a = java.util.Arrays.copyOf(words, REGISTERS);
        t.a4 = a[4];
        t.a5 = a[5];
        t.a6 = a[6];
        t.a7 = a[7];
        return sp;
    }

    @Override
    boolean returnsInMemory(Class<?> type) {
        return numbers(type) == null && Copies.size(type) > 8;
    }

    @Override
    void storeStructure(GuestThread t, long registers, Class<?> type, int address) {
        Class<?>[] members = numbers(type);
        int at = t.guest.index(address);
        if (members == null) {
            t.storeLong(at, registers);
            return;
        }
        long[] floating = {t.f0, t.f2};
        int used = 0;
        for (Class<?> member : members) {
            int size = Copies.memberSize(member);
            at = at + size - 1 & -size;
            if (member == double.class) {
                t.storeLong(at, floating[used++]);
            } else if (member == float.class) {
                t.store(at, (int) floating[used++]);
            } else if (size == 4) {
                t.store(at, (int) registers);
            } else if (size == 2) {
                t.storeShort(at, (int) registers);
            } else {
                t.memory[at] = (byte) registers;
            }
            at += size;
        }
    }

    @Override
    long toLong(GuestThread t, long registers) {
        return registers;
    }

    @Override
    float toFloat(GuestThread t, long registers) {
        return Float.intBitsToFloat((int) (floatSize >= 4 ? t.f0 : registers));
    }

    @Override
    double toDouble(GuestThread t, long registers) {
        return Double.longBitsToDouble(floatSize >= 8 ? t.f0 : registers);
    }

    @Override
    long ofLong(GuestThread t, long value) {
        return value;
    }

    @Override
    long ofFloat(GuestThread t, float value) {
        long bits = Float.floatToRawIntBits(value) & 0xffff_ffffL;
        t.f0 = bits;
        return bits;
    }

    @Override
    long ofDouble(GuestThread t, double value) {
        long bits = Double.doubleToRawLongBits(value);
        t.f0 = bits;
        return bits;
    }
}
