"""The HTTP API, bodies in, bodies and events out; may import adapters, chat, engine, errors, generation, grammar,
keys, limits, metrics, request_id, routing, scheduling, system and text."""
