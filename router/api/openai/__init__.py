"""OpenAI's routes for chat completions and completions, and vLLM's for adapters; may import adapters, api.http, chat,
contract, engine, errors, generation, grammar, limits, request_id, scheduling, shapes,
store, system, text and turns."""
