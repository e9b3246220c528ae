"""Brings a shard from its settings to where it can run steps: loads, fits the memory, measures, warms up."""
