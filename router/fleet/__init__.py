"""The way to the shards of one group."""
