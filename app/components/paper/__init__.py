"""The paper's figures and tables, each with its picture, its finding, and the same drawn from runs."""
