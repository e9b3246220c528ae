"""The process that starts, watches and restarts the shards and the router, and the commands beside it; may import
checkpoints, router.adapters, router.config, router.environment, router.fleet, router.keys, router.logs,
router.notices, router.text, router.tls and system."""
