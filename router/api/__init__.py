"""The HTTP API, bodies in, bodies and events out; may import accounts, adapters, chat, contract, engine, errors,
explaining, foreign, foreign_settings, generation, grammar, keys, limits, metrics, pooling, request_id, routing,
scheduling, shapes, store, system, text, turns and versions."""
