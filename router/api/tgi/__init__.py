"""TGI's own routes, their bodies and replies; may import api.http, engine, errors, generation, metrics, scheduling
and text."""
