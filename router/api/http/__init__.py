"""The HTTP plumbing that all routes share; may import errors, generation, keys, limits, pooling, request_id, routing,
shapes and system."""
