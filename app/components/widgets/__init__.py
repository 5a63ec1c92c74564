"""Pieces that pages of any topic use."""
