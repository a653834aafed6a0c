package io.github.fettle.jvm;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Linux's system calls for o32 MIPS, in Java.
 *
 * <p>What is not here fails with ENOSYS, as on a kernel that is older than the program: libc has
 * ways around most of it.
 */
public final class Kernel {
    /** Calls that were asked for and are not there, with how often. */
    static final ConcurrentHashMap<Integer, AtomicInteger> MISSING = new ConcurrentHashMap<>();

    private Kernel() {}

    /**
     * Makes a system call.
     *
     * @return what {@code v0} gets, and {@code a3} (1 for an error) in the high word
     */
    public static long call(GuestThread t, int number, int a0, int a1, int a2, int a3, int sp) {
        Guest guest = t.guest;
        if (number >= Imports.FIRST) {
            return guest.imports.call(t, number, a0, a1, a2, a3, sp);
        }
        if (guest.trace != null) {
            guest.trace.enter(t, number, a0, a1, a2, a3);
        }
        long result = restarting(t, number, a0, a1, a2, a3, sp);
        if (guest.trace != null) {
            guest.trace.leave(t, number, (int) result, result >>> 32 != 0);
        }
        if (guest.poll) {
            Signals.poll(t, sp);
        }
        return result;
    }

    private static long restarting(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp) {
        while (true) {
            int error;
            try {
                return dispatch(t, number, a0, a1, a2, a3, sp) & 0xffff_ffffL;
            } catch (IOException e) {
                error = Errno.of(e);
            } catch (IndexOutOfBoundsException | NegativeArraySizeException e) {
                error = Errno.EFAULT;
            }
            if (error != Errno.RESTART) {
                return error | 1L << 32;
            }
            if (!t.guest.signals.deliver(t, sp) || !restarts(number)) {
                return Errno.EINTR | 1L << 32;
            }
        }
    }

    /** Whether a call goes on after a handler with SA_RESTART: waits for a time never do. */
    private static boolean restarts(int number) {
        switch (number) {
            case 4003: // read
            case 4004: // write
            case 4145: // readv
            case 4146: // writev
            case 4168: // accept
            case 4170: // connect
            case 4175: // recv
            case 4176: // recvfrom
            case 4177: // recvmsg
            case 4178: // send
            case 4179: // sendmsg
            case 4180: // sendto
            case 4238: // futex
            case 4334: // accept4
            case 4422: // futex_time64
                return true;
            default:
                return false;
        }
    }

    /** By groups, so that each stays a size that the JVM compiles. */
    private static int dispatch(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4003:
                return FileCalls.read(t, a0, a1, a2);
            case 4004:
                return FileCalls.write(t, a0, a1, a2);
            case 4238:
                return ThreadCalls.futex(t, a0, a1, a2, a3, false, sp);
            case 4422:
                return ThreadCalls.futex(t, a0, a1, a2, a3, true, sp);
            case 4263:
                return TimeCalls.read(t, a0, a1, false);
            case 4403:
                return TimeCalls.read(t, a0, a1, true);
            default:
                if (number < 4100) {
                    return below100(t, number, a0, a1, a2, a3, sp);
                } else if (number < 4166) {
                    return below166(t, number, a0, a1, a2, a3, sp);
                } else if (number < 4210) {
                    return below210(t, number, a0, a1, a2, a3, sp);
                } else if (number < 4288) {
                    return below288(t, number, a0, a1, a2, a3, sp);
                }
                return rest(t, number, a0, a1, a2, a3, sp);
        }
    }

    private static int missing(int number) throws Errno {
        AtomicInteger first = new AtomicInteger();
        AtomicInteger count = MISSING.putIfAbsent(number, first);
        (count == null ? first : count).incrementAndGet();
        throw new Errno(Errno.ENOSYS);
    }

    private static int below100(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4001:
                return ThreadCalls.exit(a0);
            case 4002:
                return ThreadCalls.refuseProcess("fork");
            case 4005:
                return PathCalls.open(t, PathCalls.AT_FDCWD, a0, a1, a2);
            case 4006:
                t.guest.files.close(a0);
                return 0;
            case 4007: // waitpid
                throw new Errno(Errno.ECHILD);
            case 4008: // creat
                int create = Flags.O_CREAT | Flags.O_TRUNC | Flags.O_WRONLY;
                return PathCalls.open(t, PathCalls.AT_FDCWD, a0, create, a1);
            case 4009:
                return PathCalls.link(t, PathCalls.AT_FDCWD, a0, PathCalls.AT_FDCWD, a1, 0);
            case 4010:
                return PathCalls.unlink(t, PathCalls.AT_FDCWD, a0, 0);
            case 4011:
                return ThreadCalls.refuseProcess("exec");
            case 4012:
                return PathCalls.changeDirectory(t, a0);
            case 4013:
                return TimeCalls.time(t, a0);
            case 4015:
                return PathCalls.chmod(t, PathCalls.AT_FDCWD, a0, a1);
            case 4016: // lchown
                return PathCalls.chown(t, PathCalls.AT_FDCWD, a0, a1, a2, 0x100);
            case 4019:
                return FileCalls.seek(t, a0, a1, a2);
            case 4020:
                return Identity.PROCESS;
            case 4023: // setuid
                return ProcessCalls.setIdentity(Identity.USER, a0);
            case 4024:
            case 4049:
                return Identity.USER;
            case 4027:
                return SignalCalls.alarm(t, a0);
            case 4029:
                return SignalCalls.pause(t);
            case 4033:
                return PathCalls.access(t, PathCalls.AT_FDCWD, a0, a1);
            case 4034: // nice
                return 0;
            case 4036: // sync
                return 0;
            case 4037:
                return SignalCalls.kill(t, a0, a1);
            case 4038:
                return PathCalls.rename(
                        t, PathCalls.AT_FDCWD, a0, PathCalls.AT_FDCWD, a1, 0);
            case 4039:
                return PathCalls.mkdir(t, PathCalls.AT_FDCWD, a0, a1);
            case 4040:
                return PathCalls.unlink(t, PathCalls.AT_FDCWD, a0, 0x200);
            case 4041:
                return t.guest.files.duplicate(a0, 0, false);
            case 4042:
                return FileCalls.pipe(t, 0, 0);
            case 4043:
                return TimeCalls.times(t, a0);
            case 4045:
                return t.guest.map.brk(t, a0);
            case 4046: // setgid
                return ProcessCalls.setIdentity(Identity.GROUP, a0);
            case 4047:
            case 4050:
                return Identity.GROUP;
            case 4054:
                return FileCalls.ioctl(t, a0, a1, a2);
            case 4055:
                return FileCalls.control(t, a0, a1, a2);
            case 4057: // setpgid
            case 4066: // setsid
                return 0;
            case 4060:
                return ProcessCalls.umask(t, a0);
            case 4063:
                return t.guest.files.duplicateTo(a0, a1, false);
            case 4064: // getppid
                return 1;
            case 4065: // getpgrp
                return Identity.PROCESS;
            case 4075: // setrlimit
                return 0;
            case 4076:
                return ProcessCalls.readLimit(t, a0, a1);
            case 4077:
                return TimeCalls.usage(t, a1);
            case 4078:
                return TimeCalls.timeOfDay(t, a0, a1);
            case 4080:
                return ProcessCalls.groups(t, a0, a1);
            case 4083:
                return PathCalls.symlink(t, a0, PathCalls.AT_FDCWD, a1);
            case 4085:
                return PathCalls.readLink(t, PathCalls.AT_FDCWD, a0, a1, a2);
            case 4090:
                return MemoryCalls.map(
                        t, a0, a1, a2, a3, t.load(sp + 16), t.load(sp + 20) & 0xffff_ffffL);
            case 4091:
                return MemoryCalls.unmap(t, a0, a1);
            case 4092:
                return PathCalls.truncate(t, a0, a1);
            case 4093:
                return FileCalls.truncate(t, a0, a1);
            case 4094:
                return PathCalls.chmodDescriptor(t, a0, a1);
            case 4095:
                return PathCalls.chownDescriptor(t, a0, a1, a2);
            case 4096: // getpriority, whose results are 20 minus the value
                return 20;
            case 4097: // setpriority
                return 0;
            default:
                return missing(number);
        }
    }

    private static int below166(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4104:
                return SignalCalls.timer(t, a0, a1, a2);
            case 4105:
                return SignalCalls.readTimer(t, a0, a1);
            case 4114: // wait4
                throw new Errno(Errno.ECHILD);
            case 4116:
                return ProcessCalls.systemInfo(t, a0);
            case 4118: // fsync
            case 4152: // fdatasync
                return FileCalls.sync(t, a0);
            case 4120:
                return ThreadCalls.clone(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4122:
                return ProcessCalls.uname(t, a0);
            case 4125:
                return MemoryCalls.protect(t, a0, a1);
            case 4132: // getpgid
            case 4151: // getsid
                return Identity.PROCESS;
            case 4133:
                return PathCalls.changeDirectoryDescriptor(t, a0);
            case 4136: // personality
                return 0;
            case 4140:
                return FileCalls.seekLong(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4142:
                return PollCalls.select(
                        t, a0, a1, a2, a3, PollCalls.timeval(t, t.load(sp + 16)));
            case 4143: // flock
                t.guest.files.get(a0);
                return 0;
            case 4144:
                return MemoryCalls.sync(t, a0, a1);
            case 4145:
                return FileCalls.readVector(t, a0, a1, a2);
            case 4146:
                return FileCalls.writeVector(t, a0, a1, a2);
            case 4147: // cacheflush
            case 4154: // mlock
            case 4155: // munlock
            case 4156: // mlockall
            case 4157: // munlockall
                return 0;
            case 4159: // sched_getparam
                t.store(a1, 0);
                return 0;
            case 4160: // sched_getscheduler: SCHED_OTHER
            case 4163: // sched_get_priority_max of it
            case 4164: // sched_get_priority_min of it
                return 0;
            case 4162:
                Thread.yield();
                return 0;
            default:
                return missing(number);
        }
    }

    private static int below210(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4166:
                return TimeCalls.sleep(t, 1, 0, a0, a1, false);
            case 4167:
                return MemoryCalls.remap(t, a0, a1, a2, a3);
            case 4168:
                return SocketCalls.accept(t, a0, a1, a2, 0);
            case 4169:
                return SocketCalls.bind(t, a0, a1, a2);
            case 4170:
                return SocketCalls.connect(t, a0, a1, a2);
            case 4171:
                return SocketCalls.name(t, a0, a1, a2, true);
            case 4172:
                return SocketCalls.name(t, a0, a1, a2, false);
            case 4173:
                return SocketCalls.option(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4174:
                return SocketCalls.listen(t, a0);
            case 4175:
                return SocketCalls.receive(t, a0, a1, a2, a3, 0, 0);
            case 4176:
                return SocketCalls.receive(
                        t, a0, a1, a2, a3, t.load(sp + 16), t.load(sp + 20));
            case 4177:
                return SocketCalls.message(t, a0, a1, a2, false);
            case 4178:
                return SocketCalls.send(t, a0, a1, a2, a3, 0, 0);
            case 4179:
                return SocketCalls.message(t, a0, a1, a2, true);
            case 4180:
                return SocketCalls.send(t, a0, a1, a2, a3, t.load(sp + 16), t.load(sp + 20));
            case 4181:
                return SocketCalls.setOption(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4182:
                return SocketCalls.shutdown(t, a0, a1);
            case 4183:
                return SocketCalls.open(t, a0, a1, a2);
            case 4184:
                return SocketCalls.pair(t, a0, a1, a3);
            case 4185: // setresuid
                return ProcessCalls.setIdentity(Identity.USER, a0, a1, a2);
            case 4186:
                return ProcessCalls.identities(t, Identity.USER, a0, a1, a2);
            case 4188:
                return PollCalls.poll(t, a0, a1, PollCalls.milliseconds(a2));
            case 4190: // setresgid
                return ProcessCalls.setIdentity(Identity.GROUP, a0, a1, a2);
            case 4191:
                return ProcessCalls.identities(t, Identity.GROUP, a0, a1, a2);
            case 4194:
                return SignalCalls.action(t, a0, a1, a2, a3);
            case 4195:
                return SignalCalls.mask(t, a0, a1, a2, a3);
            case 4196:
                return SignalCalls.pending(t, a0);
            case 4197:
                return SignalCalls.timedWait(t, a0, a1, a2, false);
            case 4198: // rt_sigqueueinfo
                return SignalCalls.kill(t, a0, a1);
            case 4199:
                return SignalCalls.suspend(t, a0, sp);
            case 4200:
                return FileCalls.readAt(
                        t, a0, a1, a2, t.pair(t.load(sp + 16), t.load(sp + 20)));
            case 4201:
                return FileCalls.writeAt(
                        t, a0, a1, a2, t.pair(t.load(sp + 16), t.load(sp + 20)));
            case 4202: // chown
                return PathCalls.chown(t, PathCalls.AT_FDCWD, a0, a1, a2, 0);
            case 4203:
                return PathCalls.workingDirectory(t, a0, a1);
            case 4206:
                return SignalCalls.alternateStack(t, a0, a1, sp);
            case 4207:
                return FileCalls.send(t, a0, a1, a2, false, a3);
            default:
                return missing(number);
        }
    }

    private static int below288(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4210:
                return MemoryCalls.map(
                        t, a0, a1, a2, a3, t.load(sp + 16),
                        (t.load(sp + 20) & 0xffff_ffffL) * MemoryMap.PAGE);
            case 4211:
                return PathCalls.truncate(t, a0, t.pair(a2, a3));
            case 4212:
                return FileCalls.truncate(t, a0, t.pair(a2, a3));
            case 4213:
                return PathCalls.stat(t, PathCalls.AT_FDCWD, a0, a1, 0);
            case 4214: // lstat64
                return PathCalls.stat(t, PathCalls.AT_FDCWD, a0, a1, 0x100);
            case 4215:
                return PathCalls.statDescriptor(t, a0, a1);
            case 4218:
                return MemoryCalls.advise(t, a0, a1, a2);
            case 4219:
                return FileCalls.entries(t, a0, a1, a2);
            case 4220:
                return FileCalls.control(t, a0, a1, a2);
            case 4222:
                return t.id;
            case 4223: // readahead
            case 4254: // fadvise64
                t.guest.files.get(a0);
                return 0;
            case 4236:
                return SignalCalls.threadKill(t, -1, a0, a1);
            case 4237:
                return FileCalls.send(t, a0, a1, a2, true, a3);
            case 4239: // sched_setaffinity
                return 0;
            case 4240:
                return ThreadCalls.affinity(t, a1, a2);
            case 4246:
                return ThreadCalls.exitGroup(t, a0);
            case 4248:
                return PollCalls.epollCreate(t, 0);
            case 4249:
                return PollCalls.epollControl(t, a0, a1, a2, a3);
            case 4250:
                return PollCalls.epollWait(t, a0, a1, a2, PollCalls.milliseconds(a3));
            case 4252:
                return ThreadCalls.setTidAddress(t, a0);
            case 4255: // statfs64
                return PathCalls.statFileSystem(t, a2);
            case 4256: // fstatfs64
                t.guest.files.get(a0);
                return PathCalls.statFileSystem(t, a2);
            case 4264:
                return TimeCalls.resolution(t, a0, a1, false);
            case 4265:
                return TimeCalls.sleep(t, a0, a1, a2, a3, false);
            case 4266:
                return SignalCalls.threadKill(t, a0, a1, a2);
            case 4278: // waitid
                throw new Errno(Errno.ECHILD);
            case 4283: // set_thread_area
                t.tls = a0;
                return 0;
            default:
                return missing(number);
        }
    }

    private static int rest(
            GuestThread t, int number, int a0, int a1, int a2, int a3, int sp)
            throws IOException {
        switch (number) {
            case 4288:
                return PathCalls.open(t, a0, a1, a2, a3);
            case 4289:
                return PathCalls.mkdir(t, a0, a1, a2);
            case 4291: // fchownat
                return PathCalls.chown(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4293:
                return PathCalls.stat(t, a0, a1, a2, a3);
            case 4294:
                return PathCalls.unlink(t, a0, a1, a2);
            case 4295:
                return PathCalls.rename(t, a0, a1, a2, a3, 0);
            case 4296:
                return PathCalls.link(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4297:
                return PathCalls.symlink(t, a0, a1, a2);
            case 4298:
                return PathCalls.readLink(t, a0, a1, a2, a3);
            case 4299:
                return PathCalls.chmod(t, a0, a1, a2);
            case 4300: // faccessat
            case 4439: // faccessat2
                return PathCalls.access(t, a0, a1, a2);
            case 4301: // pselect6
            case 4413: // pselect6_time64
                long until = PollCalls.timespec(t, t.load(sp + 16), number == 4413);
                int maskAt = t.load(sp + 20);
                return PollCalls.masked(
                        t, maskAt == 0 ? 0 : t.load(maskAt), sp,
                        () -> PollCalls.select(t, a0, a1, a2, a3, until));
            case 4302: // ppoll
            case 4414: // ppoll_time64
                long deadline = PollCalls.timespec(t, a2, number == 4414);
                return PollCalls.masked(t, a3, sp, () -> PollCalls.poll(t, a0, a1, deadline));
            case 4309: // set_robust_list
                t.robustList = a0;
                return 0;
            case 4312: // getcpu
                if (a0 != 0) {
                    t.store(a0, 0);
                }
                return 0;
            case 4313: // epoll_pwait
                return PollCalls.masked(t, t.load(sp + 16), sp,
                        () -> PollCalls.epollWait(t, a0, a1, a2, PollCalls.milliseconds(a3)));
            case 4316: // utimensat
            case 4412: // utimensat_time64
                return PathCalls.setTimes(t, a0, a1, a2, a3, number == 4412);
            case 4319: // eventfd
                return FileCalls.eventCounter(t, a0, 0);
            case 4320:
                return FileCalls.allocate(
                        t, a0, a1, t.pair(a2, a3), t.pair(t.load(sp + 16), t.load(sp + 20)));
            case 4325: // eventfd2
                return FileCalls.eventCounter(t, a0, a1);
            case 4326: // epoll_create1
                return PollCalls.epollCreate(t, a0);
            case 4327: // dup3
                if (a0 == a1) {
                    throw new Errno(Errno.EINVAL);
                }
                return t.guest.files.duplicateTo(a0, a1, (a2 & Flags.O_CLOEXEC) != 0);
            case 4328: // pipe2
                return FileCalls.pipe(t, a0, a1);
            case 4334: // accept4
                return SocketCalls.accept(t, a0, a1, a2, a3);
            case 4338: // prlimit64
                return ProcessCalls.limit(t, a0, a1, a2, a3);
            case 4351: // renameat2
                return PathCalls.rename(t, a0, a1, a2, a3, t.load(sp + 16));
            case 4353: // getrandom
                return ProcessCalls.random(t, a0, a1);
            case 4366: // statx
                return PathCalls.statx(t, a0, a1, a2, t.load(sp + 16));
            case 4406: // clock_getres_time64
                return TimeCalls.resolution(t, a0, a1, true);
            case 4407: // clock_nanosleep_time64
                return TimeCalls.sleep(t, a0, a1, a2, a3, true);
            case Exports.CALL:
                t.guest.exports.read(t, a0, a1);
                return 0;
            case 4421: // rt_sigtimedwait_time64
                return SignalCalls.timedWait(t, a0, a1, a2, true);
            default:
                return missing(number);
        }
    }
}
