"""Measures `LLM.generate` beside the engine alone and transformers; may import checkpoints, engine, launcher, load,
offline, programs, shard and system."""
