import torch

# The tensors of the tests are small, and threads of torch's that wait for a core make them many times slower.
torch.set_num_threads(1)
