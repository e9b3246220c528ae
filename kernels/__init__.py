"""The arithmetic of a model, one public function for each op, on processors and GPUs; imports none of our packages."""
