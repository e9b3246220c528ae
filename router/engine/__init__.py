"""The task that drives a group of shards and the state of each request; may import adapters, checkpoints,
contract, errors, fleet, grammar, limits, metrics, scheduling, system and text."""
