"""Whether a model has seen the questions that it is scored on."""
