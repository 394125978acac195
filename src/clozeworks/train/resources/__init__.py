"""What a run needs: arithmetic, memory, time."""
