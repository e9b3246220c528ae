"""The file of a shard's keys and values, which the launcher holds and the shard fills."""

HEADER_BYTES = 4096
"""The length of its first page, in which a shard notes what the rest is; it stays when the rest is discarded."""
