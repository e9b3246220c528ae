"""The gRPC API for services, imported only where a port is given for it; may import api, config, contract, engine,
errors, generation, metrics, pooling, protos, request_id, scheduling, shapes, system, text and tracing."""
