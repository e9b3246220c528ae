"""The environment variables that child processes get: those that they need, and so no secret by chance."""

import os
import re

_ANY = r"PATH|HOME|USER|LOGNAME|TMPDIR|TE?MP|TZ|TZDIR|LANG|LANGUAGE|LC_\w+|LD_\w+|PYTHON\w*|VIRTUAL_ENV|COVERAGE\w*"
_NETWORK = r"SSL_CERT_\w+|\w+_PROXY|\w+_proxy|GRPC_\w+|OTEL_\w+"
_COMPUTE = (r"KERNELS\w*|SHARD_DIE_ON_TOKEN|XDG_CACHE_HOME|CXX|CC|CUDA\w*|NVIDIA_\w+|NCCL_\w+|GLOO_\w+|TP_\w+|TORCH\w*|"
            r"PYTORCH_\w+|TRITON_\w+|OMP_\w+|GOMP_\w+|KMP_\w+|MKL_\w+|OPENBLAS_\w+|ATEN_\w+|ONEDNN_\w+|"
            r"DNNL_\w+|MALLOC_\w+|GLIBC_\w+")
_TOKENIZER = r"RAYON_\w+|TOKENIZERS_\w+|MALLOC_\w+|GLIBC_\w+"


GRPC = {"GRPC_VERBOSITY": "NONE", "GRPC_ENABLE_FORK_SUPPORT": "0"}
"""The variables that keep gRPC's core from writing lines of its own into the log, which already tells of a lost peer,
and from starting threads in each process that is forked, which end it now and then before it becomes another program.
"""


def prepare_grpc() -> None:
    """Sets the variables of `GRPC` that are not set, for this process: to be called before gRPC is imported."""
    for name, value in GRPC.items():
        os.environ.setdefault(name, value)


def for_text() -> dict[str, str]:
    """Returns the variables of a process that computes nothing and talks to its parent alone."""
    return _matching(_ANY)


def for_router() -> dict[str, str]:
    """Returns the variables of the router, beside its keys."""
    return GRPC | _matching(_ANY, _NETWORK, _TOKENIZER)


def for_shard() -> dict[str, str]:
    """Returns the variables of a shard, with those that torch, its libraries and compilers read."""
    return GRPC | _matching(_ANY, _NETWORK, _COMPUTE)


def _matching(*patterns: str) -> dict[str, str]:
    pattern = re.compile("|".join(patterns))
    return {name: value for name, value in os.environ.items() if pattern.fullmatch(name)}
