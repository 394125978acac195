"""What `train.*` of a recipe says: steps, phases, optimizers, schedules, the spike guard, which checkpoints stay."""
