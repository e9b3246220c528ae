"""The HTTP plumbing that all routes share; may import errors, explaining, generation, keys, limits, pooling,
request_id, routing, shapes and system."""
