"""How the processes of a run are started."""
