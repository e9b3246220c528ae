"""The layers of a decoder: each reads its own slice of the weights and knows what the other ranks hold. They import
kernels, weights and communication, and nothing that runs steps, serves or starts up."""
