"""The client of the matrix: `client.py PORT`. Asks its parent by `cut` and `kill` to do what only it can."""

import gc
import sys
import threading
import time

import grpc
import matrix_pb2
import matrix_pb2_grpc

KINDS = ["unary", "server", "client", "bidi"]
ENDS = ["ok", "error", "cancel", "deadline", "abort", "cut", "idle", "forgotten", "killed"]


def ask_parent(what):
    print(what, flush=True)
    sys.stdin.readline()


channel = grpc.insecure_channel("127.0.0.1:" + sys.argv[1], options=[("grpc.enable_retries", 0)])
stub = matrix_pb2_grpc.MatrixStub(channel)


def asks(tag, over):
    """Two messages, and then, if the call is to hang, nothing until it is over."""
    for _ in range(2):
        yield matrix_pb2.Ask(tag=tag, body=b"12345", secret="s")
    if tag.split("/")[1] not in ("ok", "idle", "forgotten"):
        over.wait()


def start(kind, tag, over, **options):
    """A call in progress: a future, or a stream of answers."""
    one = matrix_pb2.Ask(tag=tag, body=b"12345", secret="s")
    if kind == "unary":
        return stub.Unary.future(one, **options)
    if kind == "server":
        return stub.ServerStream(one, **options)
    if kind == "client":
        return stub.ClientStream.future(asks(tag, over), **options)
    return stub.Bidi(asks(tag, over), **options)


def wait(kind, call):
    try:
        if kind in ("unary", "client"):
            call.result()
        else:
            for _ in call:
                pass
    except (grpc.RpcError, grpc.FutureCancelledError):
        pass


for end in ENDS:
    over = threading.Event()
    running = []
    for kind in KINDS:
        tag = f"{kind}/{end}"
        if end in ("ok", "error", "abort"):
            # As programs call: blocking.
            if kind == "unary":
                try:
                    stub.Unary(matrix_pb2.Ask(tag=tag, body=b"12345", secret="s"))
                except grpc.RpcError:
                    pass
            elif kind == "client":
                try:
                    stub.ClientStream(asks(tag, over))
                except grpc.RpcError:
                    pass
            else:
                wait(kind, start(kind, tag, over))
        elif end == "deadline":
            wait(kind, start(kind, tag, over, timeout=0.3))
        elif end == "cancel":
            call = start(kind, tag, over)
            time.sleep(0.1)
            call.cancel()
            wait(kind, call)
        elif end == "idle":
            # Kept and never looked at.
            running.append(start(kind, tag, over))
        elif end == "forgotten":
            start(kind, tag, over)
            gc.collect()
        else:
            running.append((kind, start(kind, tag, over)))
    if end in ("cut", "killed"):
        time.sleep(0.2)
        ask_parent("cut" if end == "cut" else "kill")
        for kind, call in running:
            wait(kind, call)
        # The channel may wait before it connects anew.
        if end == "cut":
            grpc.channel_ready_future(channel).result(timeout=10)
    over.set()
    if end in ("idle", "forgotten"):
        time.sleep(0.3)
    if end == "idle":
        idle = running
gc.collect()
channel.close()
time.sleep(0.3)
print("done", flush=True)
