"""Prompts that the demo model goes on with for long: made-up Python, never twice the same."""

import random

_NAMES = ["path", "name", "line", "key", "value", "size", "data", "file", "node", "item", "text", "index", "list"]
_VERBS = ["read", "write", "open", "close", "find", "walk", "parse", "load", "merge", "split", "count", "copy"]


def source(rng: random.Random, num_lines: int) -> str:
    """So many lines of a class, about ten tokens each, then the start of one more method."""
    lines = [f"class {rng.choice(_VERBS).title()}{rng.choice(_NAMES).title()}{rng.randrange(1000)}:"]
    while len(lines) < num_lines:
        name, other = rng.sample(_NAMES, 2)
        lines += [f"    def {rng.choice(_VERBS)}_{name}(self, {other}):",
                  f"        self.{name} = {rng.choice(_VERBS)}({other}, {rng.randrange(100)})",
                  f"        return self.{name}", ""]
    return "\n".join(lines[:num_lines]) + f"\n    def {rng.choice(_VERBS)}_{rng.choice(_NAMES)}(self):\n"
