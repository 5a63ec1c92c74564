"""The paper's tables as studies: cells, launch, results."""
