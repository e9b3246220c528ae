"""`penstock ray`: places groups and routers on the machines of a Ray cluster, and none of their data goes through Ray;
may import router.config, router.launcher, router.logs and system."""
