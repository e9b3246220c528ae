"""The series that Prometheus reads; may import accounts, contract, errors, limits, scheduling, store, system.release
and versions."""
