"""The paper's figures and tables, each with its finding, and the same drawn from runs."""
