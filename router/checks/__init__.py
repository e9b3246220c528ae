"""Checks of whole answers before clients get them, in processes of their own; may import errors, metrics and system."""
