"""OpenAI's Responses API; may import api.http, api.openai, chat, engine, errors, generation, grammar, limits,
scheduling, shapes, store, text and turns."""
