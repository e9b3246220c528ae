"""Asks for recorded answers once more, and compares them: `penstock replay`; may import system."""
