"""The series that Prometheus reads; may import contract, errors, limits and scheduling."""
