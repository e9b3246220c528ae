"""The names of TGI 3.3.7: facts of its interface."""

ROUTES = (
    "POST /", "GET /", "POST /generate", "POST /generate_stream", "POST /v1/chat/completions", "POST /v1/completions",
    "POST /vertex", "POST /invocations", "POST /tokenize", "POST /chat_tokenize", "GET /info", "GET /health",
    "GET /ping", "GET /metrics", "GET /v1/models", "GET /docs", "GET /api-doc/openapi.json",
)
OPTIONAL_ROUTES = ("POST $AIP_PREDICT_ROUTE", "GET $AIP_HEALTH_ROUTE", "GET /v2", "GET /v2/health/live",
                   "GET /v2/health/ready", "POST /v2/models/{model}/versions/{version}/infer")
"""Of builds with other features than the stock image's."""

FIELDS = {
    "/generate": ("inputs", "parameters", "stream"),
    "/generate: parameters": (
        "best_of", "temperature", "repetition_penalty", "frequency_penalty", "top_k", "top_p", "typical_p", "do_sample",
        "max_new_tokens", "return_full_text", "stop", "truncate", "watermark", "details", "decoder_input_details",
        "seed", "top_n_tokens", "grammar", "adapter_id"),
    "/v1/chat/completions": (
        "model", "messages", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens",
        "max_completion_tokens", "n", "presence_penalty", "stop", "stream", "seed", "temperature", "top_p", "tools",
        "tool_prompt", "tool_choice", "response_format", "stream_options"),
    "/v1/completions": (
        "model", "prompt", "max_tokens", "temperature", "top_p", "stream", "seed", "suffix", "repetition_penalty",
        "frequency_penalty", "stop"),
}
ANSWER_FIELDS = {
    "/generate": ("generated_text", "details"),
    "/generate: details": ("finish_reason", "generated_tokens", "seed", "prefill", "tokens", "best_of_sequences",
                           "top_tokens"),
    "/generate_stream": ("index", "token", "top_tokens", "generated_text", "details"),
    "/generate_stream: details": ("finish_reason", "generated_tokens", "seed", "input_length"),
    "/v1/chat/completions": ("id", "object", "created", "model", "system_fingerprint", "choices", "usage"),
    "/v1/completions": ("id", "object", "created", "model", "system_fingerprint", "choices", "usage"),
    "/chat_tokenize": ("tokenize_response", "templated_text"),
    "/info": ("model_id", "model_sha", "model_pipeline_tag", "max_concurrent_requests", "max_best_of",
              "max_stop_sequences", "max_input_tokens", "max_total_tokens", "validation_workers",
              "max_client_batch_size", "router", "version", "sha", "docker_label"),
}
HEADERS = (
    "x-compute-type", "x-compute-time", "x-compute-characters", "x-total-time", "x-validation-time", "x-queue-time",
    "x-inference-time", "x-time-per-token", "x-prompt-tokens", "x-generated-tokens", "x-accel-buffering",
)
METRICS = (
    "tgi_request_count", "tgi_request_success", "tgi_request_failure", "tgi_batch_inference_count",
    "tgi_batch_inference_success", "tgi_batch_inference_failure", "tgi_batch_concat", "tgi_queue_size",
    "tgi_batch_current_size", "tgi_batch_current_max_tokens", "tgi_batch_max_total_tokens", "tgi_batch_total_tokens",
    "tgi_request_duration", "tgi_request_validation_duration", "tgi_request_queue_duration",
    "tgi_request_inference_duration", "tgi_request_mean_time_per_token_duration", "tgi_batch_inference_duration",
    "tgi_batch_forward_duration", "tgi_batch_decode_duration", "tgi_batch_filter_duration",
    "tgi_batch_concat_duration", "tgi_request_input_length", "tgi_request_generated_tokens",
    "tgi_request_max_new_tokens", "tgi_batch_next_size", "tgi_request_skipped_tokens",
)
FLAGS = (
    "--model-id", "--revision", "--validation-workers", "--sharded", "--num-shard", "--quantize", "--speculate",
    "--dtype", "--kv-cache-dtype", "--trust-remote-code", "--max-concurrent-requests", "--max-best-of",
    "--max-stop-sequences", "--max-top-n-tokens", "--max-input-tokens", "--max-input-length", "--max-total-tokens",
    "--waiting-served-ratio", "--max-batch-prefill-tokens", "--max-batch-total-tokens", "--max-waiting-tokens",
    "--max-batch-size", "--cuda-graphs", "--hostname", "--port", "--prometheus-port", "--shard-uds-path",
    "--master-addr", "--master-port", "--huggingface-hub-cache", "--weights-cache-override",
    "--disable-custom-kernels", "--cuda-memory-fraction", "--rope-scaling", "--rope-factor", "--json-output",
    "--otlp-endpoint", "--otlp-service-name", "--cors-allow-origin", "--api-key", "--watermark-gamma",
    "--watermark-delta", "--ngrok", "--ngrok-authtoken", "--ngrok-edge", "--tokenizer-config-path",
    "--disable-grammar-support", "--env", "--max-client-batch-size", "--lora-adapters", "--usage-stats",
    "--payload-limit", "--enable-prefill-logprobs", "--graceful-termination-timeout",
)
