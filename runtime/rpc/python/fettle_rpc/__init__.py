"""What stubs of protoc-gen-fettle call; programs do not use it themselves.

A call is followed from its beginning to its one end and reported to the sensor `rpc.calls`. What is known of it
lies in a `Call`, in no thread, and the first of several ends counts.
"""

from ._call import Call, Method, current, size
from ._client import client
from ._codec import marshal, unmarshal
from ._server import server

__all__ = ["Call", "Method", "client", "current", "marshal", "server", "size", "unmarshal"]
