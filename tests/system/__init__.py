"""Tests of the whole: real engines, real clients, the installed commands."""
