"""Measurements, run by hand; nothing here is asserted."""
