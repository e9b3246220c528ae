"""The series that Prometheus reads; may import contract, errors, limits, scheduling and system.release."""
