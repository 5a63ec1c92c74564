"""From data to trained model: questions, templates, engines, warm start, loop and checkpoints."""
