"""The gRPC API, on a port of its own, imported only where one is given; it may import the HTTP API."""
