"""What can't draft for a model is refused; the draft model's keys and values have their part of the memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contract.plan import Plan
from penstock.contract.stream_limits import StreamLimits
from penstock.shard.communication.distributed import Group
from penstock.shard.execution.drafter import MOST_MISSING, DraftModel
from penstock.shard.execution.executor import Executor
from penstock.shard.execution.facts import describe
from penstock.shard.models.keys import ModelConfigError
from penstock.shard.startup.measure import measure_step_tokens, settle_step_tokens
from tests.family_models import make_family
from tests.shard.ranks import make_config
from tests.shard.step_programs import make_row, prompt_step
from tests.tiny_models import make_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("models") / "tiny")


def test_another_vocabulary_is_refused(model: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", vocab=161)
    with pytest.raises(ModelConfigError, match="the draft model's vocabulary has 161 tokens, and the model's 160"):
        Executor(replace(make_config(model), draft_model=other), Group())


def test_a_recurrent_model_is_refused(model: Path, tmp_path: Path) -> None:
    recurrent = make_family(tmp_path, "qwen3_5")
    for target, draft, which in ((model, recurrent, "the draft model"), (recurrent, model, "the model")):
        with pytest.raises(ModelConfigError, match=f"--draft-model-id: {which} carries a state from token to token"):
            Executor(replace(make_config(target), draft_model=draft), Group())


def test_it_has_a_part_of_the_memory(model: Path, tmp_path: Path) -> None:
    small = make_tiny(tmp_path / "small", layers=1, context=64)
    config = make_config(model)
    alone, both = Executor(config, Group()), Executor(replace(config, draft_model=small), Group())
    assert isinstance(both.drafter, DraftModel)
    assert not alone.drafter.caches
    assert both.memory.kv_shape.block_bytes == alone.memory.kv_shape.block_bytes + both.drafter.shape.block_bytes
    num_blocks = config.kv_memory // both.memory.kv_shape.block_bytes
    assert both.memory.bounds.num_blocks == num_blocks < alone.memory.bounds.num_blocks
    assert [cache.num_blocks for cache in both.drafter.caches] == [both.memory.bounds.num_blocks + 1]
    assert not any(cache.data.any() for cache in both.drafter.caches)
    assert (describe(alone, 1).facts.draft_context, describe(both, 1).facts.draft_context) == (0, 64)
    assert measure_step_tokens(both, Group(), 64) >= 16
    before = [cache.data.clone() for cache in both.drafter.caches]
    with both.memory.aside(2):
        both.open(StreamLimits(1, 16, 1, 0))
        both.execute(prompt_step(0))
    assert all(map(lambda cache, data: cache.data.equal(data), both.drafter.caches, before))
    assert settle_step_tokens(both, Group(), 64) >= 16


def test_an_answer_is_taken_in_when_much_is_missing(model: Path) -> None:
    """Without a row that asks; then little is missing when one does."""
    executor = Executor(replace(make_config(model), draft_model=model), Group())
    executor.open(StreamLimits(1, 64, 16, 0))
    executor.execute(prompt_step(0, length=8))
    assert isinstance(executor.drafter, DraftModel)
    taken = []
    for number in range(1, 2 * MOST_MISSING + 2):
        row = make_row(0, 7 + number, from_last_sample=True, new_blocks=[(7 + number) // 16] * ((7 + number) % 16 == 0))
        result = executor.execute(Plan(number, (row,)))
        taken.append(int(executor.drafter._written[0]))
        assert result.rows[0].token_ids
    assert sorted(set(taken)) == [8, 8 + MOST_MISSING, 8 + 2 * MOST_MISSING]
    end = 9 + 2 * MOST_MISSING
    (asked,) = executor.execute(Plan(end, (make_row(0, end, from_last_sample=True, num_proposals=3),))).rows
    assert len(asked.token_ids) == 4, "a model that drafts for itself is right"
