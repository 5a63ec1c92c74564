"""The web server: gate, sign-in, the shell around pages, refreshes."""
