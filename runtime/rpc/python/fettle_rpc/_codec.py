"""What reads and writes messages, for the hooks around it.

gRPC calls a serializer with a message and nothing else. Where a message is written, the call that it belongs to
is known to the thread; where it is read, the times are kept until the message comes to its call.
"""

import threading
from collections import OrderedDict

import fettle

from ._call import AFTER_MARSHAL, AFTER_UNMARSHAL, BEFORE_MARSHAL, BEFORE_UNMARSHAL, enabled

_here = threading.local()
# Times of messages that were read and not given to anyone yet, by identity. Those of calls that are cut off
# in between stay for a while.
_read = OrderedDict()
_READ_MAX = 4096


def writes(call):
    """The messages that this thread writes next are of this call."""
    _here.call = call


def marshal(serializer, method):
    """What a stub has instead of a serializer."""
    if not method.observed or not enabled():
        return serializer

    def observed(message):
        call = getattr(_here, "call", None)
        if call is None or call.method is not method:
            return serializer(message)
        call.hook(BEFORE_MARSHAL)
        data = serializer(message)
        call.hook(AFTER_MARSHAL)
        return data

    return observed


def unmarshal(deserializer, method):
    """What a stub has instead of a deserializer."""
    if not method.observed or not enabled():
        return deserializer

    def observed(data):
        begin = fettle.tsc()
        message = deserializer(data)
        _read[id(message)] = (begin, fettle.tsc())
        while len(_read) > _READ_MAX:
            try:
                _read.popitem(last=False)
            except KeyError:
                break
        return message

    return observed


def was_read(call, message):
    """A message has come to its call: passes the hooks around its reading."""
    times = _read.pop(id(message), None)
    if times is None:
        return
    method = call.method
    for hook, when in zip((BEFORE_UNMARSHAL, AFTER_UNMARSHAL), times):
        if method.cflow:
            call.moment(hook, when)
        own = method.hooks.get(hook)
        if own is not None:
            own(call)
