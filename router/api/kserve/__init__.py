"""KServe's Open Inference Protocol with Triton's extensions: tensors in, tensors out; may import api.http, contract,
engine, errors, generation, grammar, limits, metrics, pooling, routing, scheduling, shapes, system and versions."""
