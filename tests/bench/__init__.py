"""Tests that the benchmarks run."""
