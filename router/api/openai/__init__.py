"""OpenAI's routes for chat completions and completions; may import api.http, chat, engine, errors, generation,
grammar, scheduling, text and tracing."""
