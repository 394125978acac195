"""From a pretrained model and a labelled file to a model that answers: what the command line and Python both call."""
