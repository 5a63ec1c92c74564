"""What a replay method is made of: three protocols with the columns they see, and how a part is found by its name."""
