"""The process that starts, watches and restarts the shards and the router, and the commands beside it; may import
config, environment, fleet, keys, logs, notices, system, text, tls and variables."""
