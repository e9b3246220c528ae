"""The task that drives a group of shards and the state of each request; may import adapters, config, errors, fields,
fleet, grammar, metrics, scheduling, text and tracing."""
