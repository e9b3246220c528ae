"""From settings to a shard that can run steps."""
