"""The parts of an encoder: each file holds one spec and the module it builds."""
