"""The figures that Prometheus reads."""
