"""The spans of requests, for OpenTelemetry; may import engine, errors, generation, request_id and routing."""
