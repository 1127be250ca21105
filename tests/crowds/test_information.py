"""What the answers of annotators say about the class, against crowds with known spammers."""

import numpy as np

from volmin.crowds import Answers, contexts, fit_crowd, information


def judged(answers, x=None):
    fit = fit_crowd(answers, x)
    return information(answers, contexts(answers, fit), fit)


def test_answers_of_spammers_say_nothing(crowd):
    data = crowd(num_items=800, per_item=3, spammers=1)
    found = judged(Answers.from_matrix(data.matrix, 3), data.x)
    assert abs(found.share[0]) < 0.05
    assert found.doubt[0] > 10
    assert (found.share[1:] > 0.1).all()


def test_few_answers_in_many_classes_do_not_look_informative():
    """The matrix of a spammer with 60 answers in 10 classes follows chance; predictions without the answer do not."""
    generator = np.random.default_rng(0)
    clean = np.arange(600) % 10
    matrix = np.where(generator.random((600, 4)) < 0.2, generator.integers(0, 10, (600, 4)), clean[:, None])
    matrix[:, 0] = np.where(np.arange(600) < 60, generator.integers(0, 10, 600), -1)
    found = judged(Answers.from_matrix(matrix, 10))
    assert found.share[0] < 0.05
    assert found.doubt[0] > 10
    assert (found.share[1:] > 0.5).all()


def test_answers_of_annotators_with_swapped_classes_say_much():
    generator = np.random.default_rng(0)
    clean = np.arange(300) % 3
    matrix = np.where(generator.random((300, 4)) < 0.1, generator.integers(0, 3, (300, 4)), clean[:, None])
    matrix[:, 0] = (matrix[:, 0] + 1) % 3
    assert judged(Answers.from_matrix(matrix, 3)).share[0] > 0.5
