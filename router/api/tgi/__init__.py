"""TGI's own routes, their bodies and replies; may import api.http, contract, engine, errors, generation, metrics,
shapes and text."""
