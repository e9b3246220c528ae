"""From a request of any API to the events of its answers; may import adapters, chat, engine, errors, fleet,
grammar, metrics, records, request_id, scheduling and text."""
