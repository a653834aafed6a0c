"""The server of the matrix: `server.py`; prints its port."""

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


server = grpc.server(futures.ThreadPoolExecutor(64))
matrix_pb2_grpc.add_MatrixServicer_to_server(Matrix(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.read()
server.stop(0).wait()
