"""The adapters that requests may name."""
