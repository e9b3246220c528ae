"""A shard: one slice of the weights and of the KV memory, and the loop that runs the steps it is sent."""
