"""The public gRPC API, of protos/penstock.proto."""
