"""The task that drives a group of shards and the state of each request; may import adapters, config, errors, fleet,
grammar, metrics, scheduling, system, text and tracing."""
