"""The series that Prometheus reads; may import contract, errors, limits, scheduling, store, system.release and
versions."""
