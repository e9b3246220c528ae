"""Starts what benchmarks measure: Penstock, its peers, the model that they serve; it imports nothing of their code."""
