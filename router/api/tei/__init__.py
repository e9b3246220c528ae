"""The routes of Text Embeddings Inference, their bodies and replies; may import api.http, contract, errors, generation,
limits, pooling, shapes and text."""
