"""The Python client, against servers that die, refuse and differ."""
