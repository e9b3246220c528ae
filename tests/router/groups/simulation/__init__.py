"""A whole router, its groups of shards, its clients and what goes wrong between them, on a clock that only jumps:
`python -m tests.router.groups.simulation SEED` runs one history and tells what happens in it."""
