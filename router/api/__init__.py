"""The HTTP API, bodies in, bodies and events out; may import adapters, chat, contract, engine, errors, generation,
grammar, keys, limits, metrics, request_id, routing, scheduling, shapes,
store, system, text and turns."""
