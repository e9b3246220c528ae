"""The vectors and scores that are made of the vectors of a text's tokens; may import checkpoints, communication,
contract, kernels, models and weights."""
