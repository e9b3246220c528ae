"""The HTTP API, bodies in, bodies and events out; may import adapters, chat, engine, errors, generation, grammar,
keys, metrics, records, request_id, routing, scheduling, system and text."""
