"""Measures the router by conversations of agents, through each API; may import load, programs, router.chat and
server."""
