"""The playground: a checkpoint, or any model, answers a prompt."""
