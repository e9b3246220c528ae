"""The spans of requests, for OpenTelemetry; may import engine, errors, records, request_id and routing."""
