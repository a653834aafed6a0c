"""The CPU time of a call, client and server in this process: `bench.py CALLS`, or `bench.py CALLS otel`."""

import sys
import time
from concurrent import futures

import grpc

if sys.argv[2:] == ["otel"]:
    from opentelemetry import trace
    from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient, GrpcInstrumentorServer
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans):
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)
    GrpcInstrumentorClient().instrument()
    GrpcInstrumentorServer().instrument()

import matrix_pb2
import matrix_pb2_grpc


class Matrix(matrix_pb2_grpc.MatrixServicer):
    def Unary(self, request, context):
        return matrix_pb2.Answer(number=42)


server = grpc.server(futures.ThreadPoolExecutor(4))
matrix_pb2_grpc.add_MatrixServicer_to_server(Matrix(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
stub = matrix_pb2_grpc.MatrixStub(channel)
ask = matrix_pb2.Ask(tag="unary/ok", body=b"12345")


def run(calls):
    for _ in range(calls):
        stub.Unary(ask)


calls = int(sys.argv[1])
run(calls // 4)
begin = time.process_time_ns()
run(calls)
print((time.process_time_ns() - begin) // calls)
channel.close()
server.stop(0)
