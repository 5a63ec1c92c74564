"""Figure (b) of the paper: mixed groups, advantages and the objective."""
