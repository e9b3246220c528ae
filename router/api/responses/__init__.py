"""OpenAI's Responses API; may import api.http, api.openai, chat, contract, engine, errors, generation, grammar,
scheduling, shapes, store, text and turns."""
