"""Tests of models that are converted on this machine."""
