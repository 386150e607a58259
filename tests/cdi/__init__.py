"""Tests of the cdi package."""
