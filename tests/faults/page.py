import json
def table(told): return json.dumps(told["kinds"], indent=1)
def write_json(f, told): f.write_text(json.dumps(told, indent=2) + "\n")
def write(f, told): ...
