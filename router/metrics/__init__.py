"""The series that Prometheus reads; may import engine, errors and scheduling."""
