"""The spans of requests, for OpenTelemetry; may import engine, errors, generation, journal, request_id
and routing."""
