"""A shard holds one slice of the weights and of the KV memory, and runs the steps that the router sends it."""
