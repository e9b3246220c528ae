"""The process that starts, watches and restarts the shards and the router."""
