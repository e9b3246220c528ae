"""Orders in, results out, the same on every rank."""
