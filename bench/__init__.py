"""Measures servers, the engine and the kernels: `penstock bench`. It may import all other packages; none imports it."""
