"""From a request of any API to the events of its answers; may import adapters, chat, contract, engine, errors,
grammar, limits, logs, metrics, request_id, scheduling, shapes and text."""
