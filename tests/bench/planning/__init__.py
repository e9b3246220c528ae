"""Tests of the plans for machines."""
