"""Training: the step engine, its schedules, checkpoints and the journal."""
