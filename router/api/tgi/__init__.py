"""TGI's own routes, their bodies and replies; may import api.http, chat, engine, errors, generation, grammar, metrics,
scheduling and text."""
