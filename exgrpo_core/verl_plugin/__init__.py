"""ExGRPO as a plug-in of verl: nothing else in the core imports verl."""
