"""The HTTP plumbing that all routes share; may import engine, errors, generation, keys, records, request_id,
routing and system."""
