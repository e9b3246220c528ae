"""The spans of requests, for OpenTelemetry; may import engine, errors, generation, records, request_id and
routing."""
