"""Exchanges tensors between the ranks of a group: over sockets, shared memory, gloo or NCCL."""
