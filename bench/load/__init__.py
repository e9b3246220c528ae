"""Sends load to a server at any URL and measures its answers; it imports nothing of the server or the engine."""
