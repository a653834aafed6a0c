"""Calls and what is recorded of them."""

import contextvars
import random
import struct
import threading
import time

import fettle

# Hooks by number: crates/record/rpc/src/hooks.rs has them all.
BEFORE_CALL, AFTER_CALL, BEFORE_DISPATCH, AFTER_DISPATCH = 3, 4, 5, 6
BEFORE_REPLY_ONLY, AFTER_REPLY_ONLY, BEFORE_REPLY_WAIT, AFTER_REPLY_WAIT = 7, 8, 9, 10
BEFORE_COMPONENT, AFTER_COMPONENT, BEFORE_UNMARSHAL, AFTER_UNMARSHAL = 11, 12, 13, 14
BEFORE_MARSHAL, AFTER_MARSHAL = 15, 16

# Events: crates/base/abi/src/rpc.rs owns them.
CALL_EVENT, HOOK_EVENT, FIELDS_AT, TEXT_BYTES = 1, 16, 9, 32
NO_STATUS, SERVER = 255, 1
FINISHED, CANCELLED, DEADLINE, DROPPED, RAISED, LEFT = 1, 2, 3, 4, 5, 6
OK, STATUS_CANCELLED, STATUS_UNKNOWN, STATUS_DEADLINE = 0, 1, 2, 4
MAJOR = 17

_calls = fettle.List("rpc.calls", MAJOR, 1, cell_log2=8, ring_log2=20)
_text = struct.Struct("<4Q").unpack
_number = struct.Struct("<d").pack
_tsc = fettle.tsc
_commit = _calls.commit
_random = random.SystemRandom().getrandbits
# Ids need not be secret, only different; a child of a fork begins anew.
_seeded = [0, None]

#: The call that is being served here.
current = contextvars.ContextVar("fettle_call", default=None)


def enabled():
    """Whether calls are reported: FETTLE_SENSORS asks for it, and there is room."""
    return _calls.enabled


def _reseed():
    _seeded[1] = random.Random(_random(128)).getrandbits


_reseed()
try:
    import os

    os.register_at_fork(after_in_child=_reseed)
except AttributeError:  # no fork here
    pass


class Method:
    """A method, as stubs describe it."""

    __slots__ = ("what", "name", "mode", "cflow", "sends_id", "request", "response", "hooks",
                 "variables", "flags", "_sums", "observed")

    def __init__(self, service, number, name, flags=0, mode="performance", sends_id=False,
                 request=None, response=None, hooks=None, variables=None):
        self.what = service << 32 | number << 16
        self.name, self.mode, self.sends_id, self.flags = name, mode, sends_id, flags
        self.cflow = mode == "cflow"
        self.request, self.response = request, response
        self.hooks, self.variables = hooks or {}, variables
        self._sums = None
        # Whether anything happens at hooks.
        self.observed = self.cflow or bool(self.hooks)

    def sums(self, side):
        """The histogram and the scalar of the mode `scalar`."""
        if self._sums is None:
            minor = 0x811C9DC5
            for byte in self.name.encode():
                minor = (minor ^ byte) * 0x01000193 & 0xFFFFFFFF
            made = []
            for number, end in enumerate(("client", "server")):
                name = (self.name.replace("/", ".") + "." + end)[-56:]
                made.append((fettle.Histogram(name + ".ns", MAJOR, minor, number),
                             fettle.Scalar(name + ".failed", MAJOR, minor, 2 + number)))
            self._sums = made
        return self._sums[side]


class Call:
    """A call in progress."""

    __slots__ = ("method", "variables", "is_server", "words", "sent", "received", "sent_bytes",
                 "received_bytes", "reading", "finish", "_open", "__weakref__")

    def __init__(self, method, is_server, outer=None):
        self.method = method
        self.is_server = is_server
        bits = _seeded[1]
        if outer is None:
            self.words = [_tsc(), 0, 0, 0, 0, bits(64), bits(64), bits(63) + 1, 0]
        else:
            theirs = outer.words
            self.words = [_tsc(), 0, 0, 0, 0, theirs[5], theirs[6], bits(63) + 1, theirs[7]]
        self.sent = self.received = self.sent_bytes = self.received_bytes = 0
        # Whether the program is just reading a message, and the status that came meanwhile: which of the two
        # is over later ends the call, so that the last message is in it.
        self.reading, self.finish = False, None
        # Popped by the first end: of several threads one succeeds.
        self._open = [True]
        if method.variables is not None:
            self.variables = method.variables()
        if method.observed:
            self.hook(BEFORE_DISPATCH if is_server else BEFORE_CALL)

    def comes_from(self, header):
        """Takes over the ids of a `traceparent` that came with the call, if it is one."""
        parts = header.split("-")
        if len(parts) < 4 or len(parts[1]) != 32 or len(parts[2]) != 16:
            return
        try:
            trace, span = int(parts[1], 16), int(parts[2], 16)
        except ValueError:
            return
        if trace and span:
            words = self.words
            words[5], words[6], words[8] = trace >> 64, trace & 0xFFFFFFFFFFFFFFFF, span

    def header(self):
        """The call's own `traceparent`."""
        words = self.words
        return "00-%016x%016x-%016x-01" % (words[5], words[6], words[7])

    def hook(self, number):
        """Passes a hook: its event in the mode cflow, and code of one's own."""
        method = self.method
        if method.cflow:
            self.moment(number, _tsc())
        own = method.hooks.get(number)
        if own is not None:
            own(self)

    def moment(self, number, when):
        """Reports a hook that was passed at a time."""
        words = self.words
        _commit(HOOK_EVENT + number, (words[7], self._what(NO_STATUS, 0), words[5], words[6], when))

    def _what(self, status, ended):
        method = self.method
        flags = method.flags | SERVER if self.is_server else method.flags
        return method.what | status << 8 | ended << 4 | flags

    def sends(self, message):
        """Counts a message that is sent, and takes what is marked in it."""
        self.sent += 1
        self.sent_bytes += message.ByteSize()
        take = self.method.response if self.is_server else self.method.request
        if take is not None:
            take(message, self, self.sent == 1)

    def receives(self, message):
        """Counts a message that has come, and takes what is marked in it."""
        self.received += 1
        self.received_bytes += message.ByteSize()
        take = self.method.request if self.is_server else self.method.response
        if take is not None:
            take(message, self, self.received == 1)

    def value(self, word, value):
        """Sets a field of the call."""
        words, at = self.words, FIELDS_AT + word
        while len(words) <= at:
            words.append(0)
        words[at] = value & 0xFFFFFFFFFFFFFFFF

    def add(self, word, value):
        """Adds to a field of the call."""
        at = FIELDS_AT + word
        self.value(word, value + (self.words[at] if len(self.words) > at else 0))

    def number(self, word, value):
        """Sets a field of the call to a number with a fraction."""
        self.value(word, int.from_bytes(_number(value), "little"))

    def text(self, word, text):
        """Sets a field of the call: its first bytes."""
        data = text if isinstance(text, bytes) else text.encode()
        for at, value in enumerate(_text(data[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0"))):
            self.value(word + at, value)

    @property
    def over(self):
        """Whether the call has ended."""
        return not self._open

    def finishes(self, status, ended=FINISHED):
        """gRPC says that the call is over; a message may just be on its way to the program."""
        self.finish = (status, ended)
        if not self.reading:
            self.end(status, ended)

    def read(self, message=None):
        """The program has read a message, or found that there is none."""
        if message is not None:
            self.receives(message)
        self.reading = False
        if self.finish is not None:
            self.end(*self.finish)

    def end(self, status, ended=FINISHED):
        """Ends the call, if nothing has yet. `status` is a number of gRPC's."""
        try:
            self._open.pop()
        except IndexError:
            return
        method = self.method
        if ended == FINISHED and not self.is_server:
            if status == STATUS_CANCELLED:
                ended = CANCELLED
            elif status == STATUS_DEADLINE:
                ended = DEADLINE
        if method.observed:
            self.hook(AFTER_DISPATCH if self.is_server else AFTER_CALL)
        if method.mode == "scalar":
            times, failed = method.sums(self.is_server)
            times.record(int((_tsc() - self.words[0]) * _tick()))
            if status != OK:
                failed.add(1)
            return
        words = self.words
        words[1] = self._what(status, ended)
        words[2] = (self.received & 0xFFFFFFFF) << 32 | self.sent & 0xFFFFFFFF
        words[3] = self.sent_bytes
        words[4] = self.received_bytes
        _commit(CALL_EVENT, words)


def size(value):
    """How long a field is: bytes of a text, or elements."""
    return len(value.encode()) if isinstance(value, str) else len(value)


_known_tick = []
_measuring = threading.Lock()


def _tick():
    """Nanoseconds of a tick of the time-stamp counter."""
    if not _known_tick:
        with _measuring:
            ticks, start = _tsc(), time.perf_counter_ns()
            time.sleep(0.002)
            took = time.perf_counter_ns() - start
            _known_tick.append(took / (_tsc() - ticks))
    return _known_tick[0]
