"""Starts the programs that benchmarks measure: Penstock, its peers, the model that they serve; may import
contract, kernels, launcher, load, protos, shard and system."""
