#!/usr/bin/env bash
# The entry point of a container on Amazon SageMaker, which starts it with the one argument `serve`, sends requests to
# /invocations and /ping on port 8080, and names its settings in its own way.
set -euo pipefail

if [[ -z "${HF_MODEL_ID:-}" ]]; then
    echo "HF_MODEL_ID must be set" >&2
    exit 1
fi
export MODEL_ID="$HF_MODEL_ID"
if [[ -n "${HF_MODEL_REVISION:-}" ]]; then export REVISION="$HF_MODEL_REVISION"; fi
# On an instance without GPUs it is 0, which is no number of shards.
if [[ -n "${SM_NUM_GPUS:-}" && "$SM_NUM_GPUS" != 0 ]]; then export NUM_SHARD="$SM_NUM_GPUS"; fi
if [[ -n "${HF_MODEL_QUANTIZE:-}" ]]; then export QUANTIZE="$HF_MODEL_QUANTIZE"; fi
if [[ -n "${HF_MODEL_TRUST_REMOTE_CODE:-}" ]]; then export TRUST_REMOTE_CODE="$HF_MODEL_TRUST_REMOTE_CODE"; fi

if [[ "${1:-}" == serve ]]; then shift; fi
exec text-generation-launcher --port 8080 "$@"
