"""Write `docs/models.md`; with the argument `encoders` their part alone, and leave the rest as it is."""

import os
import re
import sys
from datetime import date
from pathlib import Path

import torch
import transformers

from penstock.kernels import dispatch
from tests.family_models import FAMILY_MODELS
from tests.models import encoders
from tests.models.measure import measure
from tests.models.table import PAGE, native_rows, parse, render


def setting() -> str:
    """Says what this runs on."""
    names = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = names[1] if names else "of an unknown name"
    return (f"{date.today()} on {os.cpu_count()} cores ({processor}), instruction path `{dispatch.path()}`, with torch "
            f"{torch.__version__} and transformers {transformers.__version__}")


def main() -> None:
    if sys.argv[1:] == ["encoders"]:
        decoders, measured_on = parse(PAGE.read_text())
    else:
        decoders, measured_on = list(native_rows(measure(tuple(FAMILY_MODELS)))), setting()
    PAGE.write_text(render(decoders, list(encoders.rows(encoders.measure())), measured_on))


if __name__ == "__main__":               # for the processes that measure import this, too
    main()
