"""ExGRPO as a plug-in of verl: nothing outside this folder imports verl, and verl is imported only where it runs."""
