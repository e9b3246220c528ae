"""Responses that clients asked for in the background: the router makes them when it has time; may import api,
batches, errors, generation, memory_ceiling, request_id, store and turns."""
