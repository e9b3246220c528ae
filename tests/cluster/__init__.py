"""Tests of the placing of groups on Ray."""
