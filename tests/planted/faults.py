"""The faults: in each a text of a file that becomes another, and the tests of the quick suite that should find it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`old` occurs once in `file`; `tests` are arguments of pytest."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        return self.file.startswith("kernels/csrc/")


_SCHEDULING = ("tests/router/scheduling",)
_KV, _SAMPLE = ("tests/kernels/test_kv_dtypes.py",), ("tests/kernels/test_sample.py",)
_ATTENTION, _TEXT = ("tests/kernels/test_paged_attention.py",), ("tests/router/text",)
_KEPT = ("tests/shard/execution/test_kept_memory.py",)
_MACHINE = ("tests/shard/devices/test_machine.py", "tests/system/test_cgroups.py")
_MASKS = ("tests/router/grammar/test_mask_worker.py", "tests/router/engine")
_ADAPTERS = ("tests/router/adapters", "tests/router/engine/test_adapters.py", "tests/router/api/test_adapters.py")

FAULTS = (
    Fault("scheduler", "last-block-not-released", "router/scheduling/memory.py",
          "self.cache.release(sequence.blocks)", "self.cache.release(sequence.blocks[:-1])", _SCHEDULING),
    Fault("scheduler", "whole-prompt-from-the-cache", "router/scheduling/memory.py",
          "(len(sequence.tokens) - 1) // self.block_size", "len(sequence.tokens) // self.block_size", _SCHEDULING),
    Fault("scheduler", "oldest-is-preempted", "router/scheduling/scheduler.py",
          "for s in reversed(self._running) if s is not", "for s in self._running if s is not", _SCHEDULING),
    Fault("scheduler", "blocks-freed-under-a-step", "router/scheduling/scheduler.py",
          "        if sequence.in_flight:\n            self._returning",
          "        if sequence.in_flight > 1:\n            self._returning", _SCHEDULING),
    Fault("scheduler", "cached-behind-anothers-block", "router/scheduling/prefix_cache.py",
          "                return index\n", "                node = node.children[key]\n                continue\n",
          _SCHEDULING),
    Fault("scheduler", "namespaces-share-blocks", "router/scheduling/prefix_cache.py",
          "return tuple(block) if index else (namespace, *block)", "return tuple(block)", _SCHEDULING),
    Fault("scheduler", "newest-block-is-evicted", "router/scheduling/prefix_cache.py",
          "self._idle.popitem(last=False)", "self._idle.popitem(last=True)", _SCHEDULING),
    Fault("scheduler", "one-token-too-many", "router/scheduling/rows.py",
          "if len(sequence.tokens) >= sequence.max_length:", "if len(sequence.tokens) > sequence.max_length:",
          _SCHEDULING),

    Fault("kernels", "scale-of-k-for-v", "kernels/csrc/kv_write.cpp",
          "v_scale = find_scale(v, tokens.head_dim);", "v_scale = k_scale;", _KV),
    Fault("kernels", "rotation-the-wrong-way", "kernels/csrc/rope.cpp",
          "second * cos + first * sin", "second * cos - first * sin", ("tests/kernels/test_rope.py",)),
    Fault("kernels", "tie-to-the-higher-id", "kernels/csrc/softmax.h",
          "if (other.score > top.score ||", "if (other.score >= top.score ||", _SAMPLE),
    Fault("kernels", "window-off-by-one", "kernels/csrc/attention_plan.h",
          "position + 1 - window)", "position - window)", _ATTENTION),
    Fault("kernels", "penalty-of-negative-scores", "kernels/sample/reference.py",
          "torch.where(before < 0, before * factor, before / factor)", "before / factor", _SAMPLE),
    Fault("kernels", "missing-tail-mask", "kernels/rms_norm/gpu.py",
          "value = tl.load(x + row + column, mask=is_column, other=0.0)", "value = tl.load(x + row + column)",
          ("tests/kernels/test_rms_norm.py",)),
    Fault("kernels", "gpu-v-scaled-as-k", "kernels/paged_attention/gpu_tile.py",
          "v_scale = tl.load(scales + scale + NUM_KV_HEADS * BLOCK_SIZE, mask=is_key, other=0.0)",
          "v_scale = tl.load(scales + scale, mask=is_key, other=0.0)", _KV),
    Fault("kernels", "gpu-merge-of-all-but-one", "kernels/paged_attention/gpu_decode.py",
          "for segment in range(first_stop, end, at_once):", "for segment in range(first_stop + 1, end, at_once):",
          ("tests/kernels/test_paged_attention_segments.py",)),
    Fault("kernels", "gpu-counters-left-behind", "kernels/paged_attention/gpu_decode.py",
          "            tl.store(counter, 0)\n", "", ("tests/kernels/test_paged_attention_segments.py",)),
    Fault("kernels", "gpu-window-off-by-one", "kernels/paged_attention/gpu_tile.py",
          "row_position[:, None] - window\n", "row_position[:, None] - window - 1\n", _ATTENTION),
    Fault("kernels", "segments-summed-in-a-row", "kernels/linear/reference.py",
          "sums = sums[0::2] + sums[1::2]", "sums = torch.cat([sums[:1] + sums[1:2], sums[2:]])",
          ("tests/kernels/test_linear.py",)),
    Fault("kernels", "gpu-scale-of-a-whole-token", "kernels/kv_write/gpu.py",
          "    largest = tl.max(tl.abs(x), axis=1)\n",
          "    largest = tl.max(tl.abs(x), axis=1)\n    largest = tl.full(largest.shape, 1.0, tl.float32) * tl.max("
          "largest)\n",
          _KV),

    Fault("text", "half-a-character-is-given", "router/text/detokenizer.py", "_MAX_HELD = 3", "_MAX_HELD = 1", _TEXT),
    Fault("text", "stop-string-cut-off", "router/text/text_path.py", "text[:match.end]", "text[:match.start]", _TEXT),
    Fault("text", "last-stop-string-counts", "router/text/stopping.py",
          "end, start = min(found)", "end, start = max(found)", _TEXT),
    Fault("text", "stops-within-min-tokens", "router/text/text_path.py",
          "if not self._num_unstopped:", "if self._num_unstopped >= 0:", _TEXT),

    Fault("api", "permits-lost-with-errors", "router/engine/engine.py",
          "        try:\n            yield\n        finally:\n            self._permits += number",
          "        yield\n        self._permits += number", ("tests/router/api/tgi", "tests/router/engine")),
    Fault("api", "seed-alike-in-all-branches", "router/generation/validation.py",
          "branch=number)", "branch=0)", ("tests/router/api/openai",)),
    Fault("api", "candidates-share-a-seed", "router/generation/validation.py",
          "replace(sampling, seed=secrets.randbits(64))", "sampling", ("tests/router/api/tgi/test_details.py",)),
    Fault("api", "tool-calls-though-cut-off", "router/api/openai/chat_choice.py",
          " and ending.finish_reason is not FinishReason.LENGTH", "",
          ("tests/router/api/openai/test_chat_tools.py",)),
    Fault("api", "mask-before-the-token", "router/grammar/mask_worker.py",
          "        if held:\n            self._accepted = loop",
          "        if wanted:\n            self._masks = loop.run_in_executor(self._thread, lambda masked=wanted: [\n"
          "                cursor.mask() for cursor in masked])\n            wanted = ()\n"
          "        if held:\n            self._accepted = loop", _MASKS),
    Fault("api", "grammar-behind-by-a-token", "router/grammar/cursor.py",
          "in self._output_so_far:", "in self._output_so_far[:-1]:", _MASKS),
    Fault("api", "choice-not-escaped", "router/grammar/forms.py",
          r'frozenset(r"\.+*?()|', r'frozenset(r"\+*?()|', ("tests/router/grammar/test_forms.py",)),
    Fault("api", "quote-escaped-in-arguments", "router/chat/tools_parser.py",
          'self._is_escaped = character == "\\\\"', "self._is_escaped = False",
          ("tests/router/chat/test_tools_parser.py",)),

    Fault("adapters", "unloaded-in-use", "router/scheduling/residency.py",
          "each.place is Place.LOADED and not each.num_holders and", "each.place is Place.LOADED and", _SCHEDULING),
    Fault("adapters", "an-adapter-is-loaded-at-once", "router/scheduling/residency.py",
          "is Place.LOADED\n\n    def is_crowded_out", "is not Place.KNOWN\n\n    def is_crowded_out", _SCHEDULING),
    Fault("adapters", "never-its-turn", "router/scheduling/adapter_turns.py",
          "                older.num_passed += 1\n", "                pass\n", _SCHEDULING),
    Fault("adapters", "loaded-marks-outlive-the-group", "router/scheduling/scheduler.py",
          "        self.adapters.forget()\n", "", _SCHEDULING),
    Fault("adapters", "adapters-share-prefixes", "router/engine/engine.py",
          "namespace=adapter.namespace if adapter else \"\"", "namespace=\"\"", _ADAPTERS),
    Fault("adapters", "one-number-for-a-name", "router/adapters/registry.py",
          "key = source.name, found.digest, found.config_digest", "key = source.name, \"\", \"\"", _ADAPTERS),
    Fault("adapters", "a-changed-scale-goes-unnoticed", "router/engine/adapter_loader.py",
          "            await asyncio.to_thread(_check_unchanged, adapter)\n", "", _ADAPTERS),
    Fault("adapters", "killers-are-loaded-beside-others", "router/engine/adapter_loader.py",
          "if self._num_losses[number] >= MAX_LOSSES_BESIDE:", "if False:", _ADAPTERS),
    Fault("adapters", "unknown-after-the-permit", "router/generation/validation.py",
          "    adapters.check(spec.adapter)\n", "", _ADAPTERS),

    Fault("recovery", "history-of-a-replay", "router/scheduling/rows.py",
          "history = tuple(sequence.tokens) if", "history = tuple(sequence.tokens[:sequence.prompt_length]) if",
          _SCHEDULING),
    Fault("recovery", "cache-outlives-the-memory", "router/engine/engine.py",
          "facts.memory_id != self.facts.memory_id or ", "", ("tests/router/engine",)),
    Fault("recovery", "deaths-never-forgotten", "router/scheduling/suspects.py",
          "        sequence.num_solo_deaths = 0\n", "", _SCHEDULING),
    Fault("recovery", "halves-run-together", "router/scheduling/scheduler.py",
          "if self._suspects.holds(sequence) or not turns.admits(sequence):", "if not turns.admits(sequence):",
          _SCHEDULING),
    Fault("recovery", "cleared-by-the-first-token", "router/scheduling/sequence.py",
          "len(self.tokens) + max(1, self.promised)", "len(self.tokens) + 1", _SCHEDULING),
    Fault("recovery", "steps-are-no-new-beginning", "router/launcher/group.py",
          "num_deaths = 0 if loss.has_stepped else num_deaths + 1", "num_deaths += 1",
          ("tests/router/launcher/test_group.py", "tests/router/launcher/test_restarts.py")),
    Fault("recovery", "loading-is-silence", "router/launcher/watch.py",
          "seconds if had_listened else 0.0", "seconds", ("tests/router/launcher/test_watch.py",)),
    Fault("recovery", "more-blocks-than-one-shard-has", "router/fleet/fleet.py",
          "min(getattr(shard.facts", "max(getattr(shard.facts", ("tests/router/fleet",)),
    Fault("recovery", "shards-at-different-steps", "router/fleet/fleet.py",
          "if result.step_id != answer.step_id:", "if result.step_id > answer.step_id:", ("tests/router/fleet",)),

    Fault("sampling", "noise-by-position-in-the-text", "shard/execution/sampler.py",
          "row.end - state.prompt_length for", "row.end for", ("tests/shard/execution/test_sampler.py",)),
    Fault("sampling", "banned-a-token-longer", "shard/execution/sampler.py",
          "if position < sampling.min_tokens:", "if position <= sampling.min_tokens:",
          ("tests/shard/execution/test_sampler.py",)),
    Fault("sampling", "another-green-list", "shard/execution/watermark.py",
          "HASH_KEY * previous_token", "HASH_KEY + previous_token",
          ("tests/shard/test_watermark.py", "tests/router/text/test_watermark.py")),
    Fault("wire", "late-masks-not-told", "router/fleet/wire.py",
          "late_mask=row.late_mask, ", "", ("tests/shard/serving/test_wire.py", "tests/router/fleet")),

    Fault("sharding", "orders-compared-by-length", "shard/serving/agreement.py",
          "len(encoded), zlib.crc32(encoded)]", "len(encoded), 0]", ("tests/shard/serving/test_agreement.py",)),
    Fault("sharding", "a-stream-opens-at-once", "shard/serving/agreement.py",
          "if is_common and (is_repeated or not opens_stream):", "if is_common:", ("tests/shard/test_group.py",)),
    Fault("sharding", "sums-in-another-order", "shard/communication/distributed.py",
          "partials[0:num_paired:2] + partials[1::2]",
          "partials[:num_paired // 2] + partials[num_paired // 2:num_paired]",
          ("tests/shard/communication/test_distributed.py",)),
    Fault("sharding", "inputs-of-the-first-rank", "shard/weights/rank_weights.py",
          "inner_inputs(length, self.group.rank, self.group.world_size)",
          "inner_inputs(length, 0, self.group.world_size)", ("tests/shard/weights",)),
    Fault("sharding", "fused-without-a-window", "kernels/fused/attention.py",
          "window=self.window,", "window=0,", ("tests/shard/layers",)),

    Fault("memory", "seal-keeps-the-id", "shard/execution/kept_memory.py",
          "Header(self._layout, secrets.token_hex(8), ",
          "Header(self._layout, self.found.id if self.found else secrets.token_hex(8), ", _KEPT),
    Fault("memory", "nothing-is-forgotten", "shard/execution/kept_memory.py",
          "            self.found = replace(self.found, is_whole=False)\n", "", _KEPT),
    Fault("memory", "a-layout-without-the-config", "shard/execution/executor.py",
          "layout = (self.numerics, self._digest, model, ", "layout = (self.numerics, self._digest, ",
          ("tests/shard/execution/test_executor.py",)),
    Fault("memory", "half-is-reserved", "shard/execution/kept_memory.py",
          "for offset in range(0, len(self._map), CHUNK_BYTES):",
          "for offset in range(0, len(self._map) // 2, CHUNK_BYTES):", _KEPT),
    Fault("memory", "parents-do-not-limit", "system/cgroups.py",
          "while folder.is_relative_to(mount):\n                yield Cgroup(folder, files)\n",
          "if folder.is_relative_to(mount):\n                yield Cgroup(folder, files)\n", _MACHINE),
    Fault("memory", "the-cache-of-files-is-not-free", "system/cgroups.py",
          "max(0, min(limits) - used + self._cached)", "max(0, min(limits) - used)", _MACHINE),
    Fault("memory", "threads-beyond-the-quota", "shard/config.py",
          "cores if quota is None else min(cores, int(quota))", "cores", ("tests/shard/test_config.py",)),

    Fault("scheduler", "budget-of-the-start", "router/scheduling/step_budget.py",
          "self._wanted = now + WEIGHT * (min(fitting, 2.0 * self._most) - now)", "pass", _SCHEDULING),
    Fault("deploy", "streams-are-cut-after-ten-seconds", "deploy/compose/docker-compose.yml",
          "  stop_grace_period: 100s\n  restart: unless-stopped\n\nx-monitor",
          "  restart: unless-stopped\n\nx-monitor", ("tests/deploy/test_compose.py",)),
    Fault("deploy", "space-is-not-looked-at", "router/launcher/download.py",
          "    if needed > free:", "    if False:", ("tests/router/launcher/test_download.py",)),
)
