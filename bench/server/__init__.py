"""Starts servers on this machine and measures them with the load generator; may import checkpoints, client, contract,
engine, kernels, load, programs, protos, router and shard."""
