import json

from clozeworks.core import checksummed_json


def test_a_sealed_record_knows_every_change():
    record = {"format": 2, "词": [1, 2.5, None], "shards": [{"file": "a", "bytes": 3}]}
    written = json.loads(json.dumps(checksummed_json.add_checksum(record), indent=2, ensure_ascii=False))
    assert not checksummed_json.broken(written)
    assert not checksummed_json.broken(checksummed_json.add_checksum(written | {"format": 3})), "sealed anew"
    assert checksummed_json.broken(written | {"format": 3})
    assert checksummed_json.broken(written | {"more": 1})
    assert checksummed_json.broken({name: value for name, value in written.items() if name != "shards"})


def test_what_was_never_sealed_is_not_broken():
    assert not checksummed_json.broken({"format": 2})
    assert not checksummed_json.broken([])
