"""Turns of conversations, from the neutral request of any API to the parts of its answers; may import chat,
contract, engine, errors, generation, grammar, metrics, request_id, scheduling, shapes, system and text."""
