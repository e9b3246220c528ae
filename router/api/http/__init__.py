"""The HTTP plumbing that all routes share; may import errors, generation, keys, records, request_id, routing and
system."""
