"""From data to trained model: questions, templates, warm start, loop and checkpoints."""
