"""Write `docs/models.md`."""

import os
import re
from datetime import date
from pathlib import Path

import torch
import transformers

from penstock.kernels import dispatch
from tests.family_models import FAMILY_MODELS
from tests.models.measure import measure
from tests.models.table import PAGE, native_rows, render


def setting() -> str:
    """Says what this runs on."""
    names = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = names[1] if names else "of an unknown name"
    return (f"{date.today()} on {os.cpu_count()} cores ({processor}), instruction path `{dispatch.path()}`, with torch "
            f"{torch.__version__} and transformers {transformers.__version__}")


def main() -> None:
    PAGE.write_text(render(list(native_rows(measure(tuple(FAMILY_MODELS)))), setting()))


if __name__ == "__main__":               # for the processes that measure import this, too
    main()
