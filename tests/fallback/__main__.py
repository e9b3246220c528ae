"""Write `docs/fallback.md`."""

from penstock.shard.fallback.architectures import causal_models
from tests.fallback.page import PAGE, render
from tests.fallback.rows import find_rows
from tests.models.__main__ import setting

if __name__ == "__main__":               # for the processes that compare import this, too
    PAGE.write_text(render(find_rows(sorted(causal_models())), setting()))
