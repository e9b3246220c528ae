"""The spans of requests, for OpenTelemetry; may import engine, errors, generation and routing."""
