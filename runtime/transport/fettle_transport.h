/* fettle_transport.h: messages between two processes of one machine, each by the way that is fastest for its size.
 *
 *     int ends[2];
 *     socketpair(AF_UNIX, SOCK_STREAM, 0, ends);         // or connect() and accept() of a UNIX socket
 *
 *     struct fettle_transport *t = fettle_transport_open(ends[0], 0);   // both processes, each with its end
 *     fettle_transport_send(t, bytes, length);
 *     ssize_t length = fettle_transport_receive(t, buffer, sizeof buffer);
 *     fettle_transport_close(t);
 *
 * There are four ways: the socket itself, a ring in shared memory whose receiver sleeps while it is empty, the same
 * with a receiver that looks for a while before it sleeps, and reading out of the sender's memory
 * (process_vm_readv). Which one is fastest changes with the size of messages, with the processors that the two
 * processes run on, and with what else the machine does. So each sender measures, for messages of each size class, and
 * chooses. The knob `transport.way` (fettle_knob.h) fixes the choice: 0 to 3; -1, its default, leaves it to the sender.
 *
 * Where shared memory or reading out of the other process is not permitted (another user, `kernel.yama.ptrace_scope`,
 * sandboxes), the other ways remain; the socket always does.
 *
 * One thread may send while another one receives; several that send, or several that receive, need a lock of yours.
 * While both processes send large messages and neither receives, both wait, as with any socket.
 *
 * Apache-2.0 OR MIT.
 */
#ifndef FETTLE_TRANSPORT_H
#define FETTLE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fettle_transport_way {
    FETTLE_TRANSPORT_SOCKET = 0, /* written to the socket and read from it */
    FETTLE_TRANSPORT_RING = 1,   /* copied into shared memory and out of it */
    FETTLE_TRANSPORT_SPIN = 2,   /* the same; who waits looks for some microseconds before it sleeps */
    FETTLE_TRANSPORT_READ = 3,   /* read out of the sender's memory */
    FETTLE_TRANSPORT_WAYS = 4
};

enum {
    FETTLE_TRANSPORT_NO_SHARED = 1, /* use the socket alone */
    FETTLE_TRANSPORT_NO_READ = 2    /* do not let the other process read our memory, nor read its */
};

/* Size classes: up to 64 bytes, then up to four times as much each, up to 4 MiB and all above. */
#define FETTLE_TRANSPORT_CLASSES 9

struct fettle_transport;

/* What has been chosen for messages of a class. */
struct fettle_transport_choice {
    int way;                                          /* the one in use */
    double ns[FETTLE_TRANSPORT_WAYS];                 /* mean time of a message by each way; 0: not measured */
    uint64_t messages[FETTLE_TRANSPORT_WAYS];         /* how many went by each */
    uint64_t switches;                                /* how often the choice has changed */
};

/* Makes a connection of a connected UNIX stream socket, which belongs to it from then on. Waits for the other process
 * to do the same. NULL and errno if that fails; then the socket is closed. */
struct fettle_transport *fettle_transport_open(int socket, unsigned flags);

/* Sends a message, and returns when the bytes may be changed again: 0; -1 and errno (EPIPE: the other process is gone;
 * EMSGSIZE: 4 GiB and more). */
int fettle_transport_send(struct fettle_transport *, const void *bytes, size_t length);

/* Waits for a message and copies it to the buffer. Returns its length; -1 and errno: EMSGSIZE where the buffer is too
 * small, and the message stays; EPIPE where the other process has ended, or has closed its end. */
ssize_t fettle_transport_receive(struct fettle_transport *, void *buffer, size_t room);

/* The length of the next message, which is waited for and stays. -1 and errno as above. */
ssize_t fettle_transport_next(struct fettle_transport *);

/* Which ways are open to messages that are sent: a bit for each. */
unsigned fettle_transport_ways(const struct fettle_transport *);

/* What has been chosen for messages of a class that are sent. */
struct fettle_transport_choice fettle_transport_choice(const struct fettle_transport *, unsigned size_class);

/* Fixes the way of all messages that are sent, as the knob does; -1 leaves the choice to the sender again. */
void fettle_transport_fix(struct fettle_transport *, int way);

/* Ends the connection; the other process's next call fails. What was sent by now can still be received. */
void fettle_transport_close(struct fettle_transport *);

#ifdef __cplusplus
}
#endif

#endif
