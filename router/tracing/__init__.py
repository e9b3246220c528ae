"""Spans of requests for OpenTelemetry; it may import the engine and generation, but no API."""
