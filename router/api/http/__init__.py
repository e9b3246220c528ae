"""The HTTP plumbing that all routes share; may import errors, generation, keys, request_id and routing."""
