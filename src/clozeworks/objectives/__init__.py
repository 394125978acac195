"""What a model is trained to do: segments, corruption, losses."""

from clozeworks.objectives.objective import Corruption, Loss, Objective, Segments

__all__ = ["Corruption", "Loss", "Objective", "Segments"]
