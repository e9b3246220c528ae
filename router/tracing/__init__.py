"""Spans of requests, for OpenTelemetry."""
