"""The client of one group's shards; may import contract, protos and system."""
