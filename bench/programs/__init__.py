"""Starts the programs that benchmarks measure: Penstock, its peers, the model that they serve; may import launcher,
load, protos and system."""
