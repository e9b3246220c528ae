"""Measures the kernels and the engine on a GPU: `python -m penstock.bench.gpu` measures, and says how far each
figure is from the limits of the hardware. Each part runs in a process of its own, for an error of a GPU's is its
process's end; may import bench.engine, bench.kernels, bench.load, bench.programs, bench.server, contract, kernels and
shard."""
