"""The names of Text Embeddings Inference 1.9: facts of its interface."""

ROUTES = {
    "embedding": ("POST /embed", "POST /embed_all", "POST /similarity", "POST /tokenize", "POST /decode",
                  "POST /v1/embeddings", "POST /embeddings", "POST /vertex", "POST /", "POST /invocations", "GET /info",
                  "GET /health", "GET /", "GET /ping", "GET /metrics", "GET /docs", "GET /api-doc/openapi.json"),
    "sparse": ("POST /embed_sparse",),
    "classifier": ("POST /predict",),
    "reranker": ("POST /rerank",),
}
"""By the kind of model that has them."""

_CUT = ("truncate", "truncation_direction")
FIELDS = {
    "/embed": ("inputs", *_CUT, "prompt_name", "normalize", "dimensions"),
    "/embed_all": ("inputs", *_CUT, "prompt_name"),
    "/embed_sparse": ("inputs", *_CUT, "prompt_name"),
    "/similarity": ("inputs", "parameters"),
    "/similarity: inputs": ("source_sentence", "sentences"),
    "/similarity: parameters": (*_CUT, "prompt_name"),
    "/predict": ("inputs", *_CUT, "raw_scores"),
    "/rerank": ("query", "texts", *_CUT, "raw_scores", "return_text"),
    "/tokenize": ("inputs", "add_special_tokens", "prompt_name"),
    "/decode": ("ids", "skip_special_tokens"),
    "/v1/embeddings": ("input", "model", "user", "encoding_format", "dimensions"),
    "/vertex": ("instances",),
}
"""By route, or by route and the field that they are part of: what bodies have."""

_SCORES = ("score", "label")
ANSWERS = {
    "/embed_sparse": ("index", "value"),
    "/predict": _SCORES,
    "/rerank": ("index", "text", "score"),
    "/tokenize": ("id", "text", "special", "start", "stop"),
    "/v1/embeddings": ("object", "data", "model", "usage"),
    "/v1/embeddings: data": ("object", "embedding", "index"),
    "/v1/embeddings: usage": ("prompt_tokens", "total_tokens"),
    "/vertex": ("predictions",),
    "/info": ("model_id", "model_sha", "model_dtype", "served_model_name", "model_type", "max_concurrent_requests",
              "max_input_length", "max_batch_tokens", "max_batch_requests", "max_client_batch_size", "auto_truncate",
              "tokenization_workers", "version", "sha", "docker_label"),
    "/info: model_type": ("embedding", "classifier", "reranker"),
    "/info: model_type.embedding": ("pooling",),
    "/info: model_type.classifier": ("id2label", "label2id"),
}
"""What answers have, beside lists of numbers."""

_MEASURES = ("x-compute-type", "x-compute-time", "x-compute-characters", "x-compute-tokens", "x-total-time",
             "x-tokenization-time", "x-queue-time", "x-inference-time")
HEADERS = dict.fromkeys(
    ("/embed", "/embed_all", "/embed_sparse", "/predict", "/rerank", "/similarity", "/v1/embeddings"), _MEASURES)

ERROR_TYPES = {"empty": 400, "validation": 422, "tokenizer": 422, "backend": 424, "overloaded": 429, "unhealthy": 503}
"""With their statuses."""

CALLS = (
    "Info/Info", "Embed/Embed", "Embed/EmbedStream", "Embed/EmbedSparse", "Embed/EmbedSparseStream", "Embed/EmbedAll",
    "Embed/EmbedAllStream", "Predict/Predict", "Predict/PredictPair", "Predict/PredictStream",
    "Predict/PredictPairStream", "Rerank/Rerank", "Rerank/RerankStream", "Tokenize/Tokenize", "Tokenize/TokenizeStream",
    "Tokenize/Decode", "Tokenize/DecodeStream",
)
"""Of gRPC, in the package `tei.v1`."""

METRICS = (
    "te_request_count", "te_request_success", "te_request_failure", "te_request_duration",
    "te_request_tokenization_duration", "te_request_queue_duration", "te_request_inference_duration",
    "te_request_input_length", "te_batch_next_size", "te_batch_next_tokens", "te_queue_size", "te_embed_count",
    "te_embed_success", "te_embed_duration", "te_embed_tokenization_duration", "te_embed_queue_duration",
    "te_embed_inference_duration", "te_predict_count", "te_predict_success", "te_predict_duration",
    "te_predict_tokenization_duration", "te_predict_queue_duration", "te_predict_inference_duration",
)

FLAGS = (
    "--model-id", "--revision", "--tokenization-workers", "--dtype", "--served-model-name", "--pooling",
    "--max-concurrent-requests", "--max-batch-tokens", "--max-batch-requests", "--max-client-batch-size",
    "--auto-truncate", "--default-prompt-name", "--default-prompt", "--dense-path", "--hf-api-token", "--hf-token",
    "--hostname", "--port", "--uds-path", "--huggingface-hub-cache", "--payload-limit", "--api-key", "--json-output",
    "--disable-spans", "--otlp-endpoint", "--otlp-service-name", "--prometheus-port", "--cors-allow-origin",
)
