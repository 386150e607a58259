"""Tests of the scripts that run before the project is installed."""
