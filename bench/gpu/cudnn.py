"""Times cuDNN's attention over the same paged cache, beside the own kernel: it is outside the bit contract."""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from penstock.bench.gpu.paged import Paged
from penstock.bench.gpu.timing import Call, median_seconds


def microseconds(paged: Paged, q: Tensor, count: int, repeats: int) -> float | str:
    """Returns the time of a call for all sequences, whose last `count` tokens ask; or a sentence that says why there is
    none."""
    if importlib.util.find_spec("cudnn") is None:
        return "nvidia-cudnn-frontend is not installed"
    try:
        call = _prepare(importlib.import_module("cudnn"), paged, q, count)
        return 1e6 * median_seconds([call], repeats)
    except Exception as error:  # whatever it does not like is no fault of the kernel beside it
        return f"cuDNN refuses: {error}"


def _prepare(cudnn: Any, paged: Paged, q: Tensor, count: int) -> Call:
    """Returns a function that launches cuDNN's best plan, which is built once, on whatever stream is torch's."""
    cache, heads, num_sequences = paged.cache, paged.heads, len(paged.lengths)
    blocks = cache.data.view(cache.dtype).view(cache.num_blocks, 2, heads.keys, cache.block_size, heads.size)
    tables = paged.tables.view(num_sequences, 1, -1, 1)
    asked, seen = (torch.tensor(numbers, dtype=torch.int32, device=q.device).view(-1, 1, 1, 1)
                   for numbers in ([count] * num_sequences, paged.lengths))
    rows = q.view(num_sequences, count, heads.queries, heads.size).transpose(1, 2)
    out = torch.empty_like(q).view(num_sequences, count, heads.queries, heads.size).transpose(1, 2)

    kind = {torch.bfloat16: cudnn.data_type.BFLOAT16, torch.float16: cudnn.data_type.HALF}[q.dtype]
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=cudnn.data_type.FLOAT,
                          compute_data_type=cudnn.data_type.FLOAT, handle=handle)
    given = [rows, blocks[:, 0], blocks[:, 1], asked, seen, tables]
    inputs = [graph.tensor_like(tensor) for tensor in given]
    result, _ = graph.sdpa(
        name="attention", q=inputs[0], k=inputs[1], v=inputs[2], is_inference=True, attn_scale=paged.scale,
        use_causal_mask_bottom_right=True, use_padding_mask=True, seq_len_q=inputs[3], seq_len_kv=inputs[4],
        paged_attention_k_table=inputs[5], paged_attention_v_table=inputs[5],
        paged_attention_max_seq_len_kv=max(paged.lengths))
    result.set_output(True).set_dim(out.shape).set_stride(out.stride())
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device=q.device)
    tensors = {**dict(zip(inputs, given, strict=True)), result: out}

    def call() -> None:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(tensors, workspace, handle=handle)

    return call
