"""`penstock ray`: groups and routers on the machines of a Ray cluster, which their data does not go through; may
import launcher, router.logs and system."""
