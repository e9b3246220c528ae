"""The process that starts, watches and restarts the shards and the router; may import config, environment, fleet, logs,
text and tls."""
