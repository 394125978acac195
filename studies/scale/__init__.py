"""What a cluster would need to pretrain a recipe, on paper."""
