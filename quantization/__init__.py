"""`penstock quantize`: checkpoints of small whole numbers, made of checkpoints of plain ones; may import kernels and
shard."""
