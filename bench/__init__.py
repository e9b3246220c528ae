"""Measures the server and its engine."""
