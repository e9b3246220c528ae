"""The HTTP plumbing that all routes share; may import errors, generation and routing."""
