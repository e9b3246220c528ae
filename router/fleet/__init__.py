"""The client of one group's shards; may import protos, scheduling and system."""
