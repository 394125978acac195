"""The planted text holds its two cues and nothing else."""

from collections import Counter

from studies.corpora.planted import SENTENCES, STAGES, TOPICS, WORDS, documents


def test_a_sentence_is_words_of_its_topic_and_a_stage():
    result = list(documents(20))
    assert len(result) == len(TOPICS)
    for document, words in zip(result, TOPICS, strict=True):
        assert document.sentences is not None
        assert len(document.sentences) == 20 * SENTENCES
        for sentence in document.sentences:
            stages = [word for word in sentence.split() if word in STAGES]
            rest = [word for word in sentence.split() if word not in STAGES]
            assert (len(stages), len(rest)) == (1, WORDS - 1)
            assert set(rest) <= set(words)


def test_stages_rise_by_one_in_a_story_and_stand_anywhere():
    begins, places = Counter(), Counter()
    for document in documents(60):
        sentences = document.sentences or []
        for at in range(0, len(sentences), SENTENCES):
            story = sentences[at : at + SENTENCES]
            stages = [next(STAGES.index(word) for word in each.split() if word in STAGES) for each in story]
            assert stages == list(range(stages[0], stages[0] + SENTENCES))
            begins[stages[0]] += 1
            places.update(next(place for place, word in enumerate(each.split()) if word in STAGES) for each in story)
    assert set(begins) == set(range(len(STAGES) - SENTENCES + 1))
    assert set(places) == set(range(WORDS))
    assert max(places.values()) < 1.2 * min(places.values())


def test_a_seed_is_a_text():
    texts = [[document.sentences for document in documents(5, seed)] for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]
