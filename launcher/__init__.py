"""The process that starts, watches and restarts the shards and the router, and the commands beside it; may import
checkpoints, router.accounts, router.adapters, router.config, router.environment, router.fleet, router.foreign_settings,
router.keys, router.logs, router.models, router.notices, router.pipeline_settings, router.text, router.tls and
system."""
