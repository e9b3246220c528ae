"""The way of spans to a collector, for every process that makes any; imports none of our packages."""
