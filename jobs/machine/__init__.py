"""This machine's environments, GPUs, disk and addresses."""
