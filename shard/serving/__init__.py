"""The server that takes orders and returns results, the same on every rank; may import adapters, communication,
config, contract, devices, execution, kernels, process, protos and system."""
