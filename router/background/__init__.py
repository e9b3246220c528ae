"""Responses that clients asked for in the background: the router makes them when it has time; may import api, errors,
generation, leased_work, memory_ceiling, request_id, store and turns."""
