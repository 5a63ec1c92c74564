"""Score tables, their comparison with printed ones, and the form that scores a model."""
