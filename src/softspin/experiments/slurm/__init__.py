"""Grids on SLURM: a job folder with a plan and two scripts, the tasks of an array, and the collection of their rows.

The tasks share no file. Each writes the folders of its runs and one outcome file. A collector reads the outcome files
and the run folders, and alone appends rows.
"""
