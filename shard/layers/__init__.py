"""The layers of a decoder, each with its rank's part of the weights; may import communication, kernels, models and
weights."""
