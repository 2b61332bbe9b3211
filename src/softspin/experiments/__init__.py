"""The paper's tables: cells as data, a grid that runs them, rows that hold what came out."""
