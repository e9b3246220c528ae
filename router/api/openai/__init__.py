"""OpenAI's routes for chat completions and completions; may import api.http, api.tgi, chat, engine, errors, generation,
grammar, scheduling, text and tracing."""
