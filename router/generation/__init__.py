"""From a request of any API to the events of its answers; may import adapters, chat, engine, errors, fleet,
grammar, metrics, records, scheduling and text."""
