"""The rules by which the paper's scores were made: those of Oat's mathematics grader, without running any answer."""
