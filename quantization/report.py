"""The report of a quantisation: report.json, and report.svg with the error of each linear as a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

ROW, BAR, LEFT, TOP = 12, 420, 260, 40   # pixels
LEAST_SHOWN = 1e-6


@dataclass(frozen=True, slots=True)
class LinearReport:
    """error: the squared error of the outputs over the calibration texts, as a part of the squared outputs."""

    linear: str
    error: float
    outliers: int                        # inputs that were 6 or more
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    method: str
    linears: Sequence[LinearReport]
    bytes_before: int
    bytes_after: int
    perplexity_before: float | None = None
    perplexity_after: float | None = None

    def write(self, folder: Path) -> None:
        (folder / "report.json").write_text(json.dumps(asdict(self), indent=2), encoding="utf-8")
        (folder / "report.svg").write_text(self._picture(), encoding="utf-8")

    def _picture(self) -> str:
        largest = max((each.error for each in self.linears), default=0.0) or LEAST_SHOWN
        rows = [_bar(number, each, largest) for number, each in enumerate(self.linears)]
        height = TOP + ROW * len(rows) + ROW
        title = f"{self.method}: squared error of each linear's outputs, of the squared outputs"
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + BAR + 100}" height="{height}" '
                'font-family="sans-serif" font-size="10"><rect width="100%" height="100%" fill="white"/>'
                f'<text x="8" y="20" font-size="13">{escape(title)}</text>{"".join(rows)}</svg>')


def _bar(number: int, linear: LinearReport, largest: float) -> str:
    y = TOP + ROW * number
    width = max(1.0, BAR * linear.error / largest)
    return (f'<text x="{LEFT - 6}" y="{y + 9}" text-anchor="end">{escape(linear.linear)}</text>'
            f'<rect x="{LEFT}" y="{y + 1}" width="{width:.1f}" height="{ROW - 3}" fill="#3b6ea5"/>'
            f'<text x="{LEFT + width + 4:.1f}" y="{y + 9}">{linear.error:.2e}</text>')
