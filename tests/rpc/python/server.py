"""The server of the matrix: `server.py`; prints its port."""

import os
import sys
import time
from concurrent import futures

import grpc
import matrix_pb2
import matrix_pb2_grpc


def hang(context):
    """Until the call is over."""
    while context.is_active():
        time.sleep(0.005)


class Matrix(matrix_pb2_grpc.MatrixServicer):
    def act(self, tag, context):
        end = tag.split("/")[1]
        if end == "error":
            context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
            context.set_details("no")
        elif end == "abort":
            context.abort(grpc.StatusCode.ABORTED, "enough")
        elif end in ("cancel", "deadline", "cut", "killed"):
            hang(context)
        return matrix_pb2.Answer(number=42)

    def Unary(self, request, context):
        # Of a chain: as many calls of the next server as the first digit says, each with the other digits.
        if following is not None and request.secret:
            for _ in range(int(request.secret[0])):
                following.Unary(matrix_pb2.Ask(tag=request.tag, secret=request.secret[1:]))
        return self.act(request.tag, context)

    def ServerStream(self, request, context):
        for number in range(3):
            yield matrix_pb2.Answer(number=number + 1)
        self.act(request.tag, context)

    def ClientStream(self, requests, context):
        tag = ""
        for request in requests:
            tag = tag or request.tag
            if tag.split("/")[1] not in ("ok", "idle", "forgotten"):
                break
        return self.act(tag, context)

    def Bidi(self, requests, context):
        tag = ""
        for request in requests:
            tag = tag or request.tag
            yield matrix_pb2.Answer(number=1)
            if tag.split("/")[1] not in ("ok", "idle", "forgotten"):
                break
        self.act(tag, context)


following = None
if os.environ.get("FETTLE_NEXT"):
    following = matrix_pb2_grpc.MatrixStub(grpc.insecure_channel("127.0.0.1:" + os.environ["FETTLE_NEXT"]))
server = grpc.server(futures.ThreadPoolExecutor(64))
matrix_pb2_grpc.add_MatrixServicer_to_server(Matrix(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.read()
server.stop(0).wait()
