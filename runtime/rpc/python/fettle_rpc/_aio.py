"""The same for grpc.aio: calls in coroutines."""

import asyncio
import inspect
import weakref

from grpc import aio

from . import _codec
from ._call import (
    AFTER_COMPONENT,
    AFTER_REPLY_WAIT,
    BEFORE_COMPONENT,
    BEFORE_REPLY_WAIT,
    DEADLINE,
    DROPPED,
    LEFT,
    RAISED,
    STATUS_CANCELLED,
    STATUS_DEADLINE,
    STATUS_UNKNOWN,
    Call,
    current,
)
from ._server import CLIENT_STREAMS, SERVER_STREAMS, begin


def client(callable_, method):
    """What a stub has instead of a callable of an asynchronous channel."""
    return _Callable(callable_, method)


class _Callable:
    """A callable of any of the four kinds."""

    __slots__ = ("_inner", "_method")

    def __init__(self, inner, method):
        self._inner, self._method = inner, method

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __call__(self, request=None, **kwargs):
        method = self._method
        call = Call(method, False, current.get())
        if method.sends_id:
            known = kwargs.get("metadata")
            kwargs["metadata"] = aio.Metadata(*(tuple(known) if known else ()),
                                              ("traceparent", call.header()))
        if method.observed:
            _codec.writes(call)
        try:
            if not method.flags & CLIENT_STREAMS:
                call.sends(request)
                inner = self._inner(request, **kwargs)
            elif request is None:
                inner = self._inner(**kwargs)
            else:
                inner = self._inner(_counted(call, request), **kwargs)
        except BaseException:
            call.end(STATUS_UNKNOWN, RAISED)
            raise
        _watch(inner, call)
        return _InProgress(inner, call)


async def _counted(call, requests):
    if hasattr(requests, "__aiter__"):
        async for request in requests:
            call.sends(request)
            yield request
    else:
        for request in requests:
            call.sends(request)
            yield request


def _watch(inner, call):
    """Ends the call when gRPC says that it is over.

    The callback is given to the part of the call that gRPC itself keeps, and knows the rest weakly: a call
    that the program forgets is cancelled when it is collected, which a reference would prevent.
    """
    known = weakref.ref(inner)

    def over(*_):
        there = known()
        if there is None:
            call.end(STATUS_CANCELLED, DROPPED)
            return
        try:
            asyncio.get_running_loop().create_task(_end(there, call))
        except RuntimeError:  # the loop is gone
            call.end(STATUS_CANCELLED if there.cancelled() else STATUS_UNKNOWN, DROPPED)

    core = getattr(inner, "_cython_call", None)
    if core is not None and hasattr(core, "add_done_callback"):
        core.add_done_callback(over)
    else:
        inner.add_done_callback(over)


async def _end(inner, call):
    code = await inner.code()
    if code.value[0] == 0 and not call.method.flags & SERVER_STREAMS and not call.over:
        try:
            call.receives(await inner)
        except BaseException:  # noqa: BLE001  (its message could not be read)
            pass
    call.end(code.value[0])


class _InProgress:
    """A call in progress. Messages are counted; everything else is the call's own."""

    def __init__(self, inner, call):
        self._inner, self._call = inner, call

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self):
        call = self._call
        if call.method.observed:
            call.hook(BEFORE_REPLY_WAIT)
        message = await self._inner
        if call.method.observed:
            call.hook(AFTER_REPLY_WAIT)
            _codec.was_read(call, message)
        if not call.over and not call.received:
            call.receives(message)
            call.end(0)
        return message

    def __aiter__(self):
        return self._answers()

    async def _answers(self):
        call = self._call
        async for message in self._inner:
            if call.method.observed:
                _codec.was_read(call, message)
            call.receives(message)
            yield message
        code = await self._inner.code()
        call.end(code.value[0])

    async def read(self):
        message = await self._inner.read()
        if message is not aio.EOF:
            self._call.receives(message)
        return message

    async def write(self, request):
        await self._inner.write(request)
        self._call.sends(request)

    def __del__(self):
        call = self.__dict__.get("_call")
        if call is not None and not call.over and not self._inner.done():
            call.end(STATUS_CANCELLED, DROPPED)
            self._inner.cancel()


def server(behavior, method):
    """What a servicer's coroutine is registered as."""
    if inspect.isasyncgenfunction(behavior):
        return _generator(behavior, method)
    return _coroutine(behavior, method)


def _ended(call, context, error=None):
    remaining = context.time_remaining()
    code = context.code()
    number = code.value[0] if hasattr(code, "value") else (code or 0)
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        if remaining is not None and remaining <= 0:
            call.end(STATUS_DEADLINE, DEADLINE)
        else:
            call.end(STATUS_CANCELLED, LEFT)
    elif error is None or number:
        call.end(number)
    else:
        call.end(STATUS_UNKNOWN, RAISED)


async def _received(call, requests):
    async for request in requests:
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


class _Context:
    """A servicer's context that counts what is written and read by it."""

    def __init__(self, inner, call):
        self._inner, self._call = inner, call

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def write(self, message):
        await self._inner.write(message)
        self._call.sends(message)

    async def read(self):
        message = await self._inner.read()
        if message is not aio.EOF:
            self._call.receives(message)
        return message


def _coroutine(behavior, method):
    streams = method.flags & (CLIENT_STREAMS | SERVER_STREAMS)

    async def handler(request, context):
        call = begin(method, context)
        token = current.set(call)
        try:
            question = _question(call, request)
            if method.observed:
                call.hook(BEFORE_COMPONENT)
            answer = await behavior(question, _Context(context, call) if streams else context)
            if method.observed:
                call.hook(AFTER_COMPONENT)
                _codec.writes(call)
            if answer is not None:
                call.sends(answer)
            _ended(call, context)
            return answer
        except BaseException as error:
            _ended(call, context, error)
            raise
        finally:
            current.reset(token)

    return handler


def _generator(behavior, method):
    async def handler(request, context):
        call = begin(method, context)
        current.set(call)
        try:
            if method.observed:
                call.hook(BEFORE_COMPONENT)
            async for answer in behavior(_question(call, request), context):
                if method.observed:
                    _codec.writes(call)
                call.sends(answer)
                yield answer
            if method.observed:
                call.hook(AFTER_COMPONENT)
            _ended(call, context)
        except BaseException as error:
            _ended(call, context, error)
            raise

    return handler
