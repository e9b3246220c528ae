"""Models: their configuration, their families, and the decoder that computes them. They import the layers, weights and
communication, and of what runs steps only its inputs."""
