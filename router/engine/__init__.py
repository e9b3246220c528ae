"""The one task that drives a group of shards, and what it keeps of each request."""
