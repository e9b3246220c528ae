"""The HTTP surface: bodies in, bodies and events out."""
