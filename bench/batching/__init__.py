"""Lets requests come to the scheduler under several policies of batching, by a real engine or on paper; may import
contract, kernels, programs, router.scheduling and shard."""
