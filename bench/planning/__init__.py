"""Plans which machines a model needs for some traffic, and what they cost; may import batching, checkpoints, contract,
launcher.hub, load, programs, router.scheduling, server, shard and system."""
