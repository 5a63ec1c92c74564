"""Running things: specifications, engines, training, supervisor and command line."""
