"""What a model is called: another name for each thing that decides answers, and one on all ranks of a group."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.shard.communication.distributed import Group, connect
from penstock.shard.config import ShardConfig
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.execution.model_name import ModelName, Naming, numerics
from penstock.shard.layers.decoder import Decoder
from penstock.shard.models.reading import read_model_config
from penstock.shard.weights.checkpoint import Checkpoint
from penstock.shard.weights.safetensors_files import SINGLE_FILE
from penstock.shard.weights.stored import CheckpointError
from tests.family_models import make_family
from tests.shard.ranks import make_config
from tests.tiny_models import make_tiny


def name_of(config: ShardConfig) -> tuple[str, ...]:
    """What the router makes the name of answers of, as Facts.bits."""
    facts = describe(Executor(config, Group()), 64).facts
    return (facts.weights_digest, facts.settings_digest, facts.dtype, facts.kv_dtype, str(facts.vocab_size),
            facts.numerics, facts.implementation)


SETTINGS: dict[str, dict[str, Any]] = {
    "dtype": {"dtype": "bfloat16"},
    "kv_cache_dtype": {"kv_cache_dtype": "int8"},
    **{f"quantize {kind}": {"quantize": kind} for kind in (
        "int8", "int4", "eetq", "bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4")},
    "activations": {"quantize": "int8", "activations": "bf16"},
    "rope_scaling linear": {"rope_scaling": "linear", "rope_factor": 2.0},
    "rope_scaling dynamic": {"rope_scaling": "dynamic", "rope_factor": 2.0},
    "rope_factor": {"rope_scaling": "linear", "rope_factor": 4.0},
    "watermark_gamma": {"watermark_gamma": 0.25},
    "watermark_delta": {"watermark_delta": 1.0},
}


def test_each_setting_has_a_name_of_its_own(model: Path) -> None:
    usual = make_config(model)
    names = {"usual": name_of(usual)}
    names |= {each: name_of(replace(usual, **settings)) for each, settings in SETTINGS.items()}
    assert len({*names.values()}) == len(names)


def test_what_changes_no_bit_changes_no_name(model: Path, tmp_path: Path) -> None:
    usual = make_config(model)
    name = name_of(usual)
    elsewhere = Path(shutil.copytree(model, tmp_path / "elsewhere"))
    for same in ({"model": elsewhere}, {"threads": 2}, {"kv_memory": 32 << 20}, {"deterministic": True},
                 {"model_id": "another"}, {"max_step_tokens": 512}, {"draft_model": model}, {"block_size": 32}):
        assert name_of(replace(usual, **same)) == name, same


CONFIG = {
    "rms_norm_eps": 1e-3, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "hidden_act": "gelu",
    "num_attention_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True,
}
"""Values that the tiny model's config.json does not have."""


def _write(model: Path, **keys: Any) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | keys))


@pytest.mark.parametrize("key", CONFIG)
def test_each_key_of_the_configuration_is_part_of_it(unchanged: Path, model: Path, key: str) -> None:
    more = {"num_attention_heads": {"head_dim": 64, "num_key_value_heads": 1}}.get(key, {})
    _write(model, **{key: CONFIG[key]}, **more)
    assert name_of(make_config(model)) != name_of(make_config(unchanged))


def test_keys_that_say_nothing_of_the_computing_are_not(unchanged: Path, model: Path) -> None:
    """Those of another version of transformers that saved the same model."""
    _write(model, transformers_version="1.2.3", _name_or_path="somewhere/else", use_cache=False)
    assert name_of(make_config(model)) == name_of(make_config(unchanged))


def test_the_end_tokens_of_generation_config_are_part_of_it(unchanged: Path, model: Path) -> None:
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}))
    assert name_of(make_config(model)) != name_of(make_config(unchanged))


@pytest.mark.parametrize("change", [{"group_size": 64}, {"modules_to_not_convert": ["lm_head"]}], ids=str)
def test_what_a_checkpoint_says_of_its_quantisation_is_part_of_it(model: Path, change: dict[str, Any]) -> None:
    said = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}

    def identity(said: dict[str, Any]) -> str:
        _write(model, quantization_config=said)
        return repr(read_model_config(model))

    before = identity(said)
    assert identity(dict(reversed(said.items()))) == before
    assert identity(said | change) != before


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "own"), [
    (8, 8, 32, {3, 5, 6, 7}),            # which do not divide the 8 segments of a sum
    (6, 6, 16, {3, 4, 5, 6}),            # 4 ranks have 2, 2, 1 and 1 heads
    (3, 3, 4, {1, 2, 3}),                # 8 does not divide 3 * 4
])
def test_each_number_of_ranks_that_changes_bits_has_a_name(
    tmp_path: Path, heads: int, kv_heads: int, head_dim: int, own: set[int]
) -> None:
    """All others have the bits, and the name, of one rank."""
    model = make_tiny(tmp_path, heads=heads, kv_heads=kv_heads, head_dim=head_dim, hidden=heads * 32)
    names = {ranks: numerics(Decoder.load(model, None, Group(0, ranks)), "float32", ranks)
             for ranks in range(1, heads + 1)}
    assert {ranks for ranks, name in names.items() if name.endswith(f"/ranks-{ranks}")} == own
    assert len({*names.values()}) == len(own) + (own != {*names})


@pytest.mark.slow
def test_frozen_sets_and_dictionaries_are_told_in_one_order(tmp_path: Path) -> None:
    """Each process has an order of its own for words."""
    program = ("import sys; from penstock.shard.models.reading import read_model_config;"
               "[print(repr(read_model_config(folder))) for folder in sys.argv[1:]]")
    folders = [make_family(tmp_path / family, family) for family in ("gemma3", "deepseek_v2", "bamba")]
    told = {subprocess.run([sys.executable, "-c", program, *folders], env={**os.environ, "PYTHONHASHSEED": seed},
                           check=True, capture_output=True, text=True).stdout for seed in ("1", "2")}
    assert len(told) == 1
    assert len(told.pop().splitlines()) == len(folders)


Ranks = Callable[[Callable[[Naming, int], None]], list[ModelName | Exception]]


@pytest.fixture
def ranks(model: Path, tmp_path: Path) -> Ranks:
    """Two ranks, each in a thread, which agree on the name after what is done to one of them."""
    def agree(disturb: Callable[[Naming, int], None]) -> list[ModelName | Exception]:
        found: dict[int, ModelName | Exception] = {}

        def rank(number: int) -> None:
            group = connect(f"file://{tmp_path / 'meet'}", number, 2)
            naming = Naming(make_config(model), group)
            disturb(naming, number)
            try:
                found[number] = naming.agree("ab" * 32)
            except CheckpointError as error:
                found[number] = error
            group.close()

        threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found[0], found[1]]

    return agree


def test_the_first_rank_of_a_machine_digests_for_all(
    ranks: Ranks, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, begin = [], Checkpoint.begin_digest
    monkeypatch.setattr(Checkpoint, "begin_digest", lambda self: (begun.append(self), begin(self))[1])
    names = ranks(lambda naming, rank: None)
    assert len(begun) == 1
    assert names == [ModelName(Checkpoint(model).digest(), "ab" * 32)] * 2


def test_ranks_that_have_read_different_files_are_refused(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    """As when the checkpoint was replaced between one's start and the other's; both say so, and neither waits."""
    other = Path(shutil.copytree(model, tmp_path / "other"))
    stamps = Checkpoint(other).stamps()

    def disturb(naming: Naming, rank: int) -> None:
        if rank:
            naming._stamps = stamps

    errors = ranks(disturb)
    assert all("rank 1 has read other files than rank 0" in str(error) for error in errors)


def test_ranks_of_two_machines_with_other_weights_are_refused(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other"))
    file = other / SINGLE_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    def disturb(naming: Naming, rank: int) -> None:
        naming._group.num_local = 1
        if rank:
            naming._stamps, naming._digest = Checkpoint(other).stamps(), Checkpoint(other).begin_digest()

    errors = ranks(disturb)
    assert all("rank 1 has other weights than rank 0" in str(error) for error in errors)


def test_ranks_with_other_settings_are_refused(ranks: Ranks) -> None:
    def disturb(naming: Naming, rank: int) -> None:
        own = naming.agree
        naming.agree = lambda settings: own(f"{rank:02}" * 32)  # type: ignore[method-assign, assignment, misc]

    errors = ranks(disturb)
    assert all("rank 1 has another config.json, or other settings, than rank 0" in str(error) for error in errors)


def test_a_file_that_is_replaced_while_it_is_loaded_ends_the_start(ranks: Ranks, model: Path) -> None:
    def disturb(naming: Naming, rank: int) -> None:
        if rank:
            os.utime(model / SINGLE_FILE)

    assert all(isinstance(error, CheckpointError) for error in ranks(disturb))
