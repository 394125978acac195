"""Fine-tuning: from a pretrained model and labelled records to a model of a task."""
