"""The paper's tables as studies: what to run, what the paper prints, and a report with both side by side."""
