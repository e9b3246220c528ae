"""The arithmetic of a model: each op has one public function, for processors and GPUs. It imports nothing else
of ours."""
