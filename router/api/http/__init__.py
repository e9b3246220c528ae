"""The HTTP plumbing that all routes share: bodies, events, access, documentation; it imports no route."""
