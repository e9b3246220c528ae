"""Sends load to a server at any URL and measures its answers; imports none of our packages."""
