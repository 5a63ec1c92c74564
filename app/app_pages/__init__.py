"""The pages of the workbench, one thin file each."""
