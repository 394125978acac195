"""Steps that train: what was cut is learned again, exits are learned; and rivals that were trained as long."""
