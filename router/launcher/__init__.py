"""The process that starts, watches and restarts the shards and the router, and the commands beside it; may import
adapters, config, environment, fields, fleet, keys, logs, notices, system, text, tls and variables."""
