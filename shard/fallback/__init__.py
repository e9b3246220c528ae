"""Models of architectures that are not native, computed by transformers' own classes with our ops in the place of what
they replace; may import communication, kernels, layers, models and weights."""
