"""Starts servers on this machine and measures them with the load generator; may import bench.engine, bench.load,
bench.programs, client, protos, router and shard."""
