"""`penstock convert`: safetensors files, made of a checkpoint that PyTorch pickled; may import weights."""
