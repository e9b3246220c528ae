"""Routes of scores: Cohere's and Jina's reranking, vLLM's scores, classes and pooled vectors, and Cohere's vectors; may
import api.http, api.openai, contract, errors, generation, pooling, request_id, shapes and text."""
