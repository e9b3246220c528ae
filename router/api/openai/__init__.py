"""OpenAI's routes for chat completions, completions and vectors, and vLLM's for adapters; may import adapters,
api.http, chat, contract, engine, errors, generation, grammar, limits, pooling, request_id, scheduling, shapes,
store, system, text and turns."""
