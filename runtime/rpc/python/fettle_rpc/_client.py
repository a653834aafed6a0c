"""Calls at their client: what stubs have instead of a channel's callables.

How a call ends is gRPC's word: `add_callback` of a call in progress, `add_done_callback` of a future. It is given
once whether the program waits for the call, reads only a part of its stream, cancels it or forgets it; of a call
that is forgotten, when it is collected.
"""

import weakref

import grpc

from . import _codec
from ._call import (
    AFTER_REPLY_WAIT,
    BEFORE_REPLY_WAIT,
    DROPPED,
    FINISHED,
    RAISED,
    STATUS_CANCELLED,
    STATUS_UNKNOWN,
    Call,
    current,
    enabled,
)


def client(callable_, method):
    """What a stub has instead of a channel's callable."""
    if not enabled():
        return callable_
    if isinstance(callable_, grpc.UnaryUnaryMultiCallable):
        return _UnaryUnary(callable_, method)
    if isinstance(callable_, grpc.UnaryStreamMultiCallable):
        return _UnaryStream(callable_, method)
    if isinstance(callable_, grpc.StreamUnaryMultiCallable):
        return _StreamUnary(callable_, method)
    if isinstance(callable_, grpc.StreamStreamMultiCallable):
        return _StreamStream(callable_, method)
    from . import _aio

    return _aio.client(callable_, method)


def begin(method, args, kwargs):
    """A new call; its arguments are given the header, if it has one. Gives them, too."""
    call = Call(method, False, current.get())
    if method.sends_id:
        # (timeout, metadata, …): metadata is the second, or is named.
        header = (("traceparent", call.header()),)
        if len(args) > 1:
            args = (args[0], tuple(args[1] or ()) + header) + args[2:]
        else:
            kwargs["metadata"] = tuple(kwargs.get("metadata") or ()) + header
    return call, args, kwargs


def status_of(error):
    """The number of an error's status."""
    try:
        return error.code().value[0]
    except Exception:  # noqa: BLE001  (an error of gRPC's without a code)
        return STATUS_UNKNOWN


_COLLECTED = "Cancelled upon garbage collection!"


def watched(inner):
    """A function that says how a call ended once it is over, with the call itself if it is still there.

    What gRPC keeps until then must not refer to the call: gRPC cancels one that the program forgets when it is
    collected.
    """
    known = weakref.ref(inner)
    # Of gRPC's own calls: the part of them that outlives them.
    state = getattr(inner, "_state", None)

    def ended():
        there = known()
        if there is not None:
            status = STATUS_CANCELLED if _is_cancelled(there) else status_of(there)
            details = getattr(state, "details", None)
        else:
            code = getattr(state, "code", None)
            status = code.value[0] if code is not None else STATUS_CANCELLED
            details = getattr(state, "details", _COLLECTED)
        return status, DROPPED if details == _COLLECTED else FINISHED, there

    return ended


def _is_cancelled(inner):
    cancelled = getattr(inner, "cancelled", None)
    return cancelled is not None and cancelled() is True


def counted(call, requests):
    """A stream of requests, counted as it is sent."""
    for request in requests:
        call.sends(request)
        if call.method.observed:
            _codec.writes(call)
        yield request


class _Callable:
    """A callable of a channel, with all that it has besides."""

    __slots__ = ("_inner", "_method")

    def __init__(self, inner, method):
        self._inner, self._method = inner, method

    def __getattr__(self, name):
        return getattr(self._inner, name)


class _WithAnswer(_Callable):
    """One answer: called, called with the call, or asked for a future."""

    __slots__ = ()

    def _sends(self, call, request):
        raise NotImplementedError

    def __call__(self, request, *args, **kwargs):
        return self._wait(self._inner, request, args, kwargs, False)

    def with_call(self, request, *args, **kwargs):
        return self._wait(self._inner.with_call, request, args, kwargs, True)

    def _wait(self, inner, request, args, kwargs, pair):
        method = self._method
        call, args, kwargs = begin(method, args, kwargs)
        try:
            request = self._sends(call, request)
            if method.observed:
                _codec.writes(call)
                call.hook(BEFORE_REPLY_WAIT)
            answer = inner(request, *args, **kwargs)
            message = answer[0] if pair else answer
            if method.observed:
                call.hook(AFTER_REPLY_WAIT)
                _codec.was_read(call, message)
            call.receives(message)
            call.end(0)
            return answer
        except grpc.RpcError as error:
            call.end(status_of(error))
            raise
        except BaseException:
            # A KeyboardInterrupt, or what an interceptor raised: gRPC cancels what is left.
            call.end(STATUS_CANCELLED, RAISED)
            raise

    def future(self, request, *args, **kwargs):
        call, args, kwargs = begin(self._method, args, kwargs)
        try:
            request = self._sends(call, request)
            if self._method.observed:
                _codec.writes(call)
            future = self._inner.future(request, *args, **kwargs)
        except BaseException:
            call.end(STATUS_UNKNOWN, RAISED)
            raise
        _ends_with(call, future)
        return future


def _ends_with(call, future):
    ended = watched(future)

    def over(*_):
        status, how, there = ended()
        if status == 0 and there is not None:
            try:
                message = there.result(timeout=0)
            except Exception:  # noqa: BLE001  (what an interceptor made of it)
                message = None
            if message is not None:
                if call.method.observed:
                    _codec.was_read(call, message)
                call.receives(message)
        call.end(status, how)

    add = getattr(future, "add_callback", None)
    if add is None:
        future.add_done_callback(over)
    elif not add(over):
        over()


class _UnaryUnary(_WithAnswer, grpc.UnaryUnaryMultiCallable):
    __slots__ = ()

    def _sends(self, call, request):
        call.sends(request)
        return request


class _StreamUnary(_WithAnswer, grpc.StreamUnaryMultiCallable):
    __slots__ = ()

    def _sends(self, call, request):
        return counted(call, request)


class _WithAnswers(_Callable):
    """A stream of answers."""

    __slots__ = ()

    def _sends(self, call, request):
        raise NotImplementedError

    def __call__(self, request, *args, **kwargs):
        call, args, kwargs = begin(self._method, args, kwargs)
        try:
            request = self._sends(call, request)
            if self._method.observed:
                _codec.writes(call)
            stream = self._inner(request, *args, **kwargs)
        except BaseException:
            call.end(STATUS_UNKNOWN, RAISED)
            raise
        ended = watched(stream)

        def over():
            call.finishes(*ended()[:2])

        if not stream.add_callback(over):
            over()
        return _Answers(stream, call)


class _UnaryStream(_WithAnswers, grpc.UnaryStreamMultiCallable):
    __slots__ = ()

    def _sends(self, call, request):
        call.sends(request)
        return request


class _StreamStream(_WithAnswers, grpc.StreamStreamMultiCallable):
    __slots__ = ()

    def _sends(self, call, request):
        return counted(call, request)


class _Answers(grpc.Call, grpc.RpcError):
    """A stream of answers, counted as it is read. Everything else is the stream's own."""

    def __init__(self, stream, call):
        self._stream, self._call = stream, call

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        return self

    def __next__(self):
        call = self._call
        observed = call.method.observed
        if observed:
            call.hook(BEFORE_REPLY_WAIT)
        call.reading = True
        try:
            message = next(self._stream)
        except StopIteration:
            call.read()
            call.end(0)
            raise
        except grpc.RpcError as error:
            call.read()
            call.end(status_of(error))
            raise
        if observed:
            call.hook(AFTER_REPLY_WAIT)
            _codec.was_read(call, message)
        call.read(message)
        return message

    next = __next__

    # What abstract classes declare and `__getattr__` therefore does not see.
    def initial_metadata(self):
        return self._stream.initial_metadata()

    def trailing_metadata(self):
        return self._stream.trailing_metadata()

    def code(self):
        return self._stream.code()

    def details(self):
        return self._stream.details()

    def is_active(self):
        return self._stream.is_active()

    def time_remaining(self):
        return self._stream.time_remaining()

    def cancel(self):
        return self._stream.cancel()

    def add_callback(self, callback):
        return self._stream.add_callback(callback)

    def __del__(self):
        # The program forgot the stream. If it was not over, gRPC cancels it now; the callback may come late
        # or, of a stream that only its reader drives, never.
        call = self.__dict__.get("_call")
        if call is not None and not call.over and self._stream.is_active():
            call.end(STATUS_CANCELLED, DROPPED)
