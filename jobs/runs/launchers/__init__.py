"""Starting workers, and knowing and ending their processes."""
