"""Calls at their server: what a servicer's methods are wrapped in.

A call ends with what its handler answers, unless gRPC says before that it is over: then the client has left, or
its time was up. A handler that returns an iterator has answered when the iterator has ended.
"""

import inspect

import grpc

from . import _codec
from ._call import (
    AFTER_COMPONENT,
    AFTER_REPLY_ONLY,
    BEFORE_COMPONENT,
    BEFORE_REPLY_ONLY,
    DEADLINE,
    LEFT,
    RAISED,
    STATUS_CANCELLED,
    STATUS_DEADLINE,
    STATUS_UNKNOWN,
    Call,
    current,
    enabled,
)

CLIENT_STREAMS, SERVER_STREAMS = 2, 4


def server(behavior, method):
    """What a servicer's method is registered as."""
    if not enabled():
        return behavior
    if inspect.iscoroutinefunction(behavior) or inspect.isasyncgenfunction(behavior):
        from . import _aio

        return _aio.server(behavior, method)
    return _streams(behavior, method) if method.flags & SERVER_STREAMS else _answers(behavior, method)


def begin(method, context):
    """A new call."""
    call = Call(method, True)
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent":
            call.comes_from(value)
    return call


def _watched(call, context):
    """Ends the call when gRPC says that it is over and the handler has not answered."""

    def over():
        if not call.over:
            _gone(call, context)

    if not context.add_callback(over):
        over()


def _gone(call, context):
    """The call is over, and not by the handler's answer."""
    remaining = context.time_remaining()
    if remaining is not None and remaining <= 0:
        call.end(STATUS_DEADLINE, DEADLINE)
    else:
        call.end(STATUS_CANCELLED, LEFT)


def _answered(call, context, raised=None):
    """The handler has answered, or raised."""
    if call.over:
        return
    if not context.is_active():
        _gone(call, context)
        return
    number = _status(context)
    if raised is None:
        call.end(number)
    elif number:
        # `abort` raises, and so do handlers that have set a status.
        call.end(number)
    else:
        call.end(STATUS_UNKNOWN, RAISED)


def _status(context):
    """The number of the status that the handler has set; 0 if it has set none."""
    code = context.code()
    return (code.value[0] if isinstance(code, grpc.StatusCode) else code) or 0


def _received(call, requests):
    for request in requests:
        if call.method.observed:
            _codec.was_read(call, request)
        call.receives(request)
        yield request


def _question(call, request):
    if call.method.flags & CLIENT_STREAMS:
        return _received(call, request)
    if call.method.observed:
        _codec.was_read(call, request)
    call.receives(request)
    return request


def _answers(behavior, method):
    """A handler with one answer."""

    def handler(request, context):
        call = begin(method, context)
        _watched(call, context)
        token = current.set(call)
        try:
            request = _question(call, request)
            if method.observed:
                call.hook(BEFORE_COMPONENT)
            answer = behavior(request, context)
            if method.observed:
                call.hook(AFTER_COMPONENT)
                call.hook(BEFORE_REPLY_ONLY)
                _codec.writes(call)
            if answer is not None and not _status(context):
                call.sends(answer)
            if method.observed:
                call.hook(AFTER_REPLY_ONLY)
            _answered(call, context)
            return answer
        except BaseException as error:
            _answered(call, context, error)
            raise
        finally:
            current.reset(token)

    return handler


def _streams(behavior, method):
    """A handler with a stream of answers."""

    def handler(request, context):
        call = begin(method, context)
        _watched(call, context)
        token = current.set(call)
        try:
            request = _question(call, request)
            if method.observed:
                call.hook(BEFORE_COMPONENT)
            answers = behavior(request, context)
        except BaseException as error:
            _answered(call, context, error)
            raise
        finally:
            current.reset(token)
        return _Sent(call, iter(answers), context)

    return handler


class _Sent:
    """The answers of a handler, counted as they are sent. The handler runs between two of them."""

    def __init__(self, call, answers, context):
        self._call, self._answers, self._context = call, answers, context

    def __iter__(self):
        return self

    def __next__(self):
        call = self._call
        token = current.set(call)
        try:
            answer = next(self._answers)
        except StopIteration:
            if call.method.observed:
                call.hook(AFTER_COMPONENT)
            _answered(call, self._context)
            raise
        except BaseException as error:
            _answered(call, self._context, error)
            raise
        finally:
            current.reset(token)
        if call.method.observed:
            call.hook(BEFORE_REPLY_ONLY)
            _codec.writes(call)
        call.sends(answer)
        if call.method.observed:
            call.hook(AFTER_REPLY_ONLY)
        return answer

    def close(self):
        """gRPC's server lets go of the answers: the handler's own cleanup runs."""
        close = getattr(self._answers, "close", None)
        if close is not None:
            close()
