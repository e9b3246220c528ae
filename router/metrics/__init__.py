"""The series that Prometheus reads; may import errors, limits and scheduling."""
