import json

from clozeworks import seal


def test_a_sealed_record_knows_every_change():
    record = {"format": 2, "词": [1, 2.5, None], "shards": [{"file": "a", "bytes": 3}]}
    written = json.loads(json.dumps(seal.sealed(record), indent=2, ensure_ascii=False))
    assert not seal.broken(written)
    assert not seal.broken(seal.sealed(written | {"format": 3})), "sealed anew"
    assert seal.broken(written | {"format": 3})
    assert seal.broken(written | {"more": 1})
    assert seal.broken({name: value for name, value in written.items() if name != "shards"})


def test_what_was_never_sealed_is_not_broken():
    assert not seal.broken({"format": 2})
    assert not seal.broken([])
