"""Anthropic's routes for messages; may import api.http, chat, engine, errors, generation, grammar, request_id,
scheduling, shapes, text and turns."""
