"""The turns of agents that `penstock bench turns` measures."""
