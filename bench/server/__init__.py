"""Starts servers on this machine and measures them with the load generator; it may import router and shard."""
