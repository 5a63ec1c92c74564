"""Lists, headers, curves and controls of runs, and their comparison."""
