"""What a model is trained to do: segments, corruption, losses."""

from clozeworks.objectives.objective import Corruption, Loss, Objective, Segments
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.translate import Translate

__all__ = ["Corruption", "Loss", "Objective", "Permute", "Segments", "Translate"]
