"""Formats of a checkpoint's files and downloads of them, for launcher, router and shard; may import system."""
