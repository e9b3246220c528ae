"""Spans on their way to a collector, for every process that makes any."""
