"""transformers on the same weights and prompts: `generate`, and its continuous batching."""

import functools
import gc
import time
from typing import Any

import torch

from penstock.bench.engine.sequences import random_prompts
from penstock.bench.gpu.ceilings import Ceilings
from penstock.bench.gpu.part import Cases, Context
from penstock.bench.gpu.records import Record
from penstock.bench.gpu.scale import served_name
from penstock.bench.gpu.weights import Floor, configuration, random_tensor
from penstock.kernels import dispatch

STATIC_SECONDS = 60                      # that compiling for a static cache may take


def cases(context: Context) -> Cases:
    peer = Peer(context)
    yield "load", peer.load
    scale = context.scale
    yield f"generate, {scale.generate_batches[0]}", functools.partial(peer.generate, scale.generate_batches[0])
    for batch in scale.continuous_batches:
        yield f"continuous batching, {batch}", functools.partial(peer.serve, batch)
    for batch in scale.generate_batches[1:]:
        yield f"generate, {batch}", functools.partial(peer.generate, batch)
    if dispatch.device().type == "cuda":
        yield "generate, static cache", functools.partial(peer.generate_static, scale.generate_batches[0])


class Peer:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._model: Any = None

    def load(self) -> Record:
        import transformers

        begin, scale = time.monotonic(), self._context.scale
        keys = {key: value for key, value in configuration(scale).items()
                if key not in ("architectures", "model_type", "dtype")}
        with torch.device(dispatch.device()):
            self._model = transformers.AutoModelForCausalLM.from_config(
                transformers.LlamaConfig(**keys), dtype=scale.dtype, attn_implementation="sdpa").eval()
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(random_tensor(name, tuple(parameter.shape), scale.dtype))
        self._model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)
        return self._context.record("load", note=f"transformers {transformers.__version__}",
                                    seconds=time.monotonic() - begin)

    def generate(self, batch: int) -> Record:
        return self._generate(f"generate, {batch} × {self._context.scale.prompt}", batch)

    def generate_static(self, batch: int) -> Record:
        name = f"generate, static cache, {batch} × {self._context.scale.prompt}"
        if self._context.seconds_left < STATIC_SECONDS:
            return self._context.record(name, note="skipped: compiling may take longer than there is time")
        return self._generate(name, batch, cache_implementation="static")

    def serve(self, batch: int) -> Record:
        """Gives all requests at once. Their decode steps are those in which all of them have begun and none has
        ended."""
        scale = self._context.scale
        name = f"continuous batching, {batch} × {scale.prompt}"
        gc.collect()
        if dispatch.device().type == "cuda":
            torch.cuda.empty_cache()
        inputs = [prompt.tolist() for prompt in random_prompts(batch, scale.prompt, scale.vocab_size)]
        begin = time.perf_counter()
        outputs = list(self._model.generate_batch(
            inputs, max_new_tokens=scale.new, record_timestamps=True, progress_bar=False, **self._room(batch)).values())
        seconds = time.perf_counter() - begin
        lengths = [len(output.generated_tokens) for output in outputs]
        if lengths != [scale.new] * batch:
            raise RuntimeError(f"{batch} requests of {scale.new} tokens gave {sum(lengths)} tokens in "
                               f"{len(outputs)} answers; {[output.error for output in outputs][:1]}")
        if outputs[0].timestamps is None:
            return self._told(name, batch, {"tokens/s": batch * scale.new / seconds, "note": "with its start"},
                              [output.generated_tokens[0] for output in outputs])
        first, last = (edge(output.timestamps[index] for output in outputs) for edge, index in ((max, 0), (min, -1)))
        decoded = sum(first < stamp <= last for output in outputs for stamp in output.timestamps)
        served = max(output.timestamps[-1] for output in outputs) - min(output.lifespan[0] for output in outputs)
        values = {"tokens/s": decoded / (last - first)} if decoded >= batch else {
            "note": "its requests never decoded all at once: the rate is that of the whole",
            "tokens/s": batch * scale.new / served}
        return self._told(name, batch, values, [output.generated_tokens[0] for output in outputs],
                          **{"served, tokens/s": batch * scale.new / served, "with its start, s": seconds})

    def _room(self, batch: int) -> dict[str, Any]:
        """Bounds the cache on a processor, where it would be nearly all of the memory there is."""
        if dispatch.device().type == "cuda":
            return {}
        import transformers

        return {"continuous_batching_config": transformers.ContinuousBatchingConfig(
            num_blocks=4 * batch, max_batch_tokens=256)}

    def _generate(self, name: str, batch: int, **form: Any) -> Record:
        scale = self._context.scale
        ids = torch.tensor([prompt.tolist() for prompt in random_prompts(batch, scale.prompt, scale.vocab_size)],
                           device=dispatch.device())
        self._timed(ids, scale.new, **form)
        few, _ = self._timed(ids, 2, **form)
        seconds, out = self._timed(ids, scale.new, **form)
        values = {"tokens/s": batch * (scale.new - 2) / (seconds - few)}
        return self._told(name, batch, values, out[:, scale.prompt].tolist())

    def _timed(self, ids: torch.Tensor, new: int, **form: Any) -> tuple[float, torch.Tensor]:
        begin = time.perf_counter()
        with torch.inference_mode():
            out = self._model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, **form)
        first = out[:, ids.shape[1]].cpu()
        assert out.shape[1] == ids.shape[1] + new, "an answer ended early"
        return time.perf_counter() - begin, torch.cat([ids.cpu(), first[:, None]], dim=1)

    def _told(self, name: str, batch: int, values: dict[str, Any], tokens: list[int], **more: object) -> Record:
        """Records the figures beside the engine's for as many sequences, and compares the first tokens."""
        scale, ours = self._context.scale, f"decode, {batch} × {self._context.scale.prompt}"
        context = scale.prompt + scale.new / 2
        share = Ceilings(self._context).share_of_copy(
            Floor(scale).decode_bytes(batch, context), batch / values["tokens/s"])
        engine = [record for record in self._context.records
                  if (record.part, record.name) == ("engine", ours) and "first_tokens" in record.values]
        values = {**values, "% of floor": share, **more}
        if engine:
            if "served, tokens/s" in more:
                for part in ("engine", "server"):
                    served = self._context.records.find(part, served_name(scale, batch), "tokens/s")
                    values[f"{part} ÷ theirs"] = served / values["served, tokens/s"]
            values["ours ÷ theirs"] = engine[-1].values["tokens/s"] / values["tokens/s"]
            equal = sum(one == other for one, other in zip(tokens, engine[-1].values["first_tokens"], strict=True))
            values["equal first tokens"] = f"{equal} of {batch}"
        return self._context.record(name, **values)
