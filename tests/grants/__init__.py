"""Tests of the grants package."""
