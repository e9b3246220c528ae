"""The gRPC API for services, on a port of its own. Imported only where one is given."""
