"""The texts that vectors are measured on."""

import json
from pathlib import Path

from penstock.bench.embed.texts import draw_texts, lengthened, whole_tokenizer
from tests.paths import DEMO_MODEL


def test_texts_have_all_lengths_and_are_the_same_for_a_seed() -> None:
    tokenizer = whole_tokenizer(DEMO_MODEL)
    texts = draw_texts(tokenizer, 40, 64, seed=3)
    lengths = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert texts == draw_texts(tokenizer, 40, 64, seed=3) != draw_texts(tokenizer, 40, 64, seed=4)
    assert (min(lengths) >= 1, max(lengths) <= 64, len(set(lengths)) > 20) == (True, True, True)


def test_a_model_is_given_another_length_and_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": true}')
    with lengthened(tmp_path, 512) as folder:
        assert {file.name for file in folder.iterdir()} == {file.name for file in tmp_path.iterdir()}
        assert json.loads((folder / "sentence_bert_config.json").read_text()) == {
            "max_seq_length": 512, "do_lower_case": True}
    assert "256" in (tmp_path / "sentence_bert_config.json").read_text()
