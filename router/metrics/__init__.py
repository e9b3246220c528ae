"""The series that Prometheus reads; may import contract, errors, limits, scheduling, store and system.release."""
