package io.github.fettle.jvm;

import java.io.IOException;
import java.net.BindException;
import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystemLoopException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.util.Locale;

/** A system call's failure. The numbers are those of Linux on MIPS, which differ from others'. */
final class Errno extends IOException {
    private static final long serialVersionUID = 1;

    static final int EPERM = 1;
    static final int ENOENT = 2;
    static final int ESRCH = 3;
    static final int EINTR = 4;
    static final int EIO = 5;
    static final int ENXIO = 6;
    static final int E2BIG = 7;
    static final int EBADF = 9;
    static final int ECHILD = 10;
    static final int EAGAIN = 11;
    static final int ENOMEM = 12;
    static final int EACCES = 13;
    static final int EFAULT = 14;
    static final int EBUSY = 16;
    static final int EEXIST = 17;
    static final int EXDEV = 18;
    static final int ENODEV = 19;
    static final int ENOTDIR = 20;
    static final int EISDIR = 21;
    static final int EINVAL = 22;
    static final int EMFILE = 24;
    static final int ENOTTY = 25;
    static final int EFBIG = 27;
    static final int ENOSPC = 28;
    static final int ESPIPE = 29;
    static final int EROFS = 30;
    static final int EMLINK = 31;
    static final int EPIPE = 32;
    static final int ERANGE = 34;
    static final int EDEADLK = 45;
    static final int ENAMETOOLONG = 78;
    static final int EOVERFLOW = 79;
    static final int ENOSYS = 89;
    static final int ELOOP = 90;
    static final int ENOTEMPTY = 93;
    static final int ENOTSOCK = 95;
    static final int EDESTADDRREQ = 96;
    static final int EPROTOTYPE = 98;
    static final int ENOPROTOOPT = 99;
    static final int EPROTONOSUPPORT = 120;
    static final int EOPNOTSUPP = 122;
    static final int EAFNOSUPPORT = 124;
    static final int EADDRINUSE = 125;
    static final int EADDRNOTAVAIL = 126;
    static final int ENETUNREACH = 128;
    static final int ECONNRESET = 131;
    static final int EISCONN = 133;
    static final int ENOTCONN = 134;
    static final int ETIMEDOUT = 145;
    static final int ECONNREFUSED = 146;
    static final int EHOSTUNREACH = 148;
    static final int EALREADY = 149;
    static final int EINPROGRESS = 150;
    static final int EOWNERDEAD = 165;

    /** A signal interrupted the call: it starts again where the handlers allow that. */
    static final int RESTART = 512;

    final int number;

    Errno(int number) {
        this.number = number;
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this; // a result, not a failure of ours
    }

    @Override
    public String getMessage() {
        return name(number);
    }

    /** The guest's number for an error that Java reported. */
    static int of(IOException e) {
        if (e instanceof Errno) {
            return ((Errno) e).number;
        } else if (e instanceof NoSuchFileException) {
            return ENOENT;
        } else if (e instanceof FileAlreadyExistsException) {
            return EEXIST;
        } else if (e instanceof DirectoryNotEmptyException) {
            return ENOTEMPTY;
        } else if (e instanceof AccessDeniedException) {
            return EACCES;
        } else if (e instanceof NotDirectoryException) {
            return ENOTDIR;
        } else if (e instanceof FileSystemLoopException) {
            return ELOOP;
        } else if (e instanceof BindException) {
            return byMessage(e, EADDRINUSE);
        } else if (e instanceof ConnectException) {
            return byMessage(e, ECONNREFUSED);
        } else if (e instanceof NoRouteToHostException) {
            return EHOSTUNREACH;
        } else if (e instanceof SocketTimeoutException) {
            return ETIMEDOUT;
        } else if (e instanceof ClosedChannelException) {
            return EBADF;
        }
        return byMessage(e, EIO);
    }

    /** Java tells many errors only by the host's message. */
    private static int byMessage(IOException e, int otherwise) {
        String message = e instanceof FileSystemException
                ? ((FileSystemException) e).getReason()
                : e.getMessage();
        if (message == null) {
            return otherwise;
        }
        String text = message.toLowerCase(Locale.ROOT);
        String[] parts = {
            "is a directory", "not a directory", "no space", "broken pipe", "connection reset",
            "read-only", "too many open", "name too long", "cross-device", "not permitted",
            "illegal seek", "too many levels", "cannot assign", "unreachable", "refused",
            "address already in use", "timed out", "file too large", "invalid argument",
            "permission denied", "not empty", "too many links",
        };
        int[] numbers = {
            EISDIR, ENOTDIR, ENOSPC, EPIPE, ECONNRESET,
            EROFS, EMFILE, ENAMETOOLONG, EXDEV, EPERM,
            ESPIPE, ELOOP, EADDRNOTAVAIL, ENETUNREACH, ECONNREFUSED,
            EADDRINUSE, ETIMEDOUT, EFBIG, EINVAL,
            EACCES, ENOTEMPTY, EMLINK,
        };
        for (int i = 0; i < parts.length; i++) {
            if (text.contains(parts[i])) {
                return numbers[i];
            }
        }
        return otherwise;
    }

    static String name(int number) {
        switch (number) {
            case EPERM: return "EPERM";
            case ENOENT: return "ENOENT";
            case ESRCH: return "ESRCH";
            case EINTR: return "EINTR";
            case EIO: return "EIO";
            case ENXIO: return "ENXIO";
            case E2BIG: return "E2BIG";
            case EBADF: return "EBADF";
            case ECHILD: return "ECHILD";
            case EAGAIN: return "EAGAIN";
            case ENOMEM: return "ENOMEM";
            case EACCES: return "EACCES";
            case EFAULT: return "EFAULT";
            case EBUSY: return "EBUSY";
            case EEXIST: return "EEXIST";
            case EXDEV: return "EXDEV";
            case ENODEV: return "ENODEV";
            case ENOTDIR: return "ENOTDIR";
            case EISDIR: return "EISDIR";
            case EINVAL: return "EINVAL";
            case EMFILE: return "EMFILE";
            case ENOTTY: return "ENOTTY";
            case EFBIG: return "EFBIG";
            case ENOSPC: return "ENOSPC";
            case ESPIPE: return "ESPIPE";
            case EROFS: return "EROFS";
            case EMLINK: return "EMLINK";
            case EPIPE: return "EPIPE";
            case ERANGE: return "ERANGE";
            case EDEADLK: return "EDEADLK";
            case ENAMETOOLONG: return "ENAMETOOLONG";
            case EOVERFLOW: return "EOVERFLOW";
            case ENOSYS: return "ENOSYS";
            case ELOOP: return "ELOOP";
            case ENOTEMPTY: return "ENOTEMPTY";
            case ENOTSOCK: return "ENOTSOCK";
            case EDESTADDRREQ: return "EDESTADDRREQ";
            case EPROTOTYPE: return "EPROTOTYPE";
            case ENOPROTOOPT: return "ENOPROTOOPT";
            case EPROTONOSUPPORT: return "EPROTONOSUPPORT";
            case EOPNOTSUPP: return "EOPNOTSUPP";
            case EAFNOSUPPORT: return "EAFNOSUPPORT";
            case EADDRINUSE: return "EADDRINUSE";
            case EADDRNOTAVAIL: return "EADDRNOTAVAIL";
            case ENETUNREACH: return "ENETUNREACH";
            case ECONNRESET: return "ECONNRESET";
            case EISCONN: return "EISCONN";
            case ENOTCONN: return "ENOTCONN";
            case ETIMEDOUT: return "ETIMEDOUT";
            case ECONNREFUSED: return "ECONNREFUSED";
            case EHOSTUNREACH: return "EHOSTUNREACH";
            case EALREADY: return "EALREADY";
            case EINPROGRESS: return "EINPROGRESS";
            case EOWNERDEAD: return "EOWNERDEAD";
            default: return "errno " + number;
        }
    }
}
