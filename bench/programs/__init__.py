"""Starts what benchmarks measure: Penstock, its peers, the model that they serve; may import bench.engine, bench.load,
protos, router and system."""
