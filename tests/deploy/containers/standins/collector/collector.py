"""A collector: takes spans by OTLP over gRPC at port 4317, and prints a line for each: trace, process and name."""

from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Printer(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            names = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            process = names["service.instance.id"].rpartition("-")[0]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    print(span.trace_id.hex(), process, span.name, flush=True)
        return trace_service_pb2.ExportTraceServiceResponse()


server = grpc.server(ThreadPoolExecutor(4))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Printer(), server)
server.add_insecure_port("0.0.0.0:4317")
server.start()
server.wait_for_termination()
