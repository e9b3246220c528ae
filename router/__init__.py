"""The router, which owns every request, every block table and the schedule; imports neither the shard nor torch."""
