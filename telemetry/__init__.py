"""The way of spans to a collector, for every process that makes any; may import system.release."""
