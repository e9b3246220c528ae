"""Fronts, the processes that answer clients beside the one that has the engine, and the engine as they see it; may
import adapters, contract, engine, errors, explaining, generation, grammar, groups, limits, rates, scheduling, system
and text."""
