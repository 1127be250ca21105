"""Tasks go out sorted and in Label Studio's form, and its exports come back as decisions."""

import copy
import datetime
import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import polars as pl
import pytest

import volmin
from volmin import noise
from volmin.auditing import apply_decisions
from volmin.compat.label_studio import (
    CHOICE,
    GIVEN,
    ROW,
    configuration,
    read_annotations,
    read_tasks,
    tasks,
    write_tasks,
)
from volmin.exceptions import DataError, InputError

ROWS = 300
CLASSES = np.array(["cat & co", "=dog", "übel"])


@pytest.fixture(scope="module")
def audited():
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=ROWS)
    labels = noise.corrupt(truth, noise.pair(3, 0.2), seed=0)
    probs = np.eye(3)[truth] * 0.9 + generator.dirichlet(np.ones(3), ROWS) * 0.1
    found = volmin.audit(CLASSES[labels], probs=probs / probs.sum(axis=1, keepdims=True), classes=CLASSES)
    frame = pl.DataFrame(
        {
            "size": np.where(np.arange(ROWS) % 7 == 0, np.nan, np.arange(ROWS)),
            "day": [datetime.date(2024, 1, 1)] * ROWS,
            "text": [f"a long description of animal {row}" for row in range(ROWS)],
        }
    )
    return found, frame, CLASSES[truth]


def annotated(task: dict[str, Any], label: str, **more: Any) -> dict[str, Any]:
    """The task as Label Studio exports it after an annotation."""
    done = copy.deepcopy(task) | {"id": 7, "project": 3, "created_at": "2024-03-09T21:52:49.513742Z"}
    value: list[dict[str, Any]] = [
        {"id": "Dx_aB91ISN", "from_name": CHOICE, "to_name": "text", "type": "choices", "origin": "manual"}
    ]
    value[0]["value"] = {"choices": [label]}
    annotation = {"id": 1, "completed_by": 1, "result": value, "was_cancelled": False, "lead_time": 4.1} | more
    return done | {"annotations": [*done.get("annotations", []), annotation]}


def test_tasks_are_the_flagged_rows_sorted_by_score(audited):
    found, frame, _ = audited
    made = tasks(found, frame)
    assert {task["data"][ROW] for task in made} == set(found.issues().tolist())
    scores = [task["predictions"][0]["score"] for task in made]
    assert scores == sorted(scores, reverse=True)
    first = made[0]
    row = first["data"][ROW]
    assert first["data"]["text"] == frame["text"][row]
    assert first["data"][GIVEN] == found.labels[row]
    assert first["predictions"][0]["result"] == [
        {"from_name": CHOICE, "to_name": "text", "type": "choices", "value": {"choices": [found.suggested[row]]}}
    ]


def test_written_tasks_are_json_and_fit_the_configuration(audited, tmp_path):
    found, frame, _ = audited
    config = write_tasks(tmp_path / "tasks.json", found, frame)
    json.loads((tmp_path / "tasks.json").read_text(), parse_constant=pytest.fail)
    view = ElementTree.fromstring(config)
    text, choices = view.find("Text"), view.find("Choices")
    assert text is not None
    assert choices is not None
    assert (text.get("name"), text.get("value"), choices.get("toName")) == ("text", "$text", "text")
    assert [choice.get("value") for choice in choices] == CLASSES.tolist()


def test_images_are_shown_as_images(audited):
    found, _, _ = audited
    paths = [f"/data/local-files/?d=cat/{row}.jpg" for row in range(ROWS)]
    made = tasks(found, images=paths)
    assert made[0]["data"]["image"] == paths[made[0]["data"][ROW]]
    assert made[0]["predictions"][0]["result"][0]["to_name"] == "image"
    assert "<Image " in configuration(["a"], "image")


def test_annotations_come_back_as_decisions_that_correct_the_labels(audited, tmp_path):
    found, frame, truth = audited
    made = tasks(found, frame)
    done = [annotated(task, str(truth[task["data"][ROW]])) for task in made[:-3]]
    skipped = annotated(made[-3], "", result=[], was_cancelled=True)
    differing = annotated(annotated(made[-2], CLASSES[0]), CLASSES[1])
    path = tmp_path / "export.json"
    path.write_text(json.dumps([*done, skipped, differing, made[-1] | {"annotations": []}]))
    corrected = apply_decisions(found.labels, read_annotations(path))
    rows = [task["data"][ROW] for task in done]
    np.testing.assert_array_equal(corrected.labels[rows], truth[rows])
    others = np.setdiff1d(np.arange(ROWS), rows)
    np.testing.assert_array_equal(corrected.labels[others], found.labels[others])
    assert corrected.counts["unsure"] == 2
    # The shorter export holds the chosen label beside the data.
    path.write_text(json.dumps([task["data"] | {"id": 1, CHOICE: str(truth[task["data"][ROW]])} for task in done]))
    again = apply_decisions(found.labels, read_annotations(path))
    np.testing.assert_array_equal(again.labels, corrected.labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ('{"a": 1}', "list of tasks"),
        ("[]", "no annotation"),
        ('[{"data": {"text": "a"}}]', "not made by volmin"),
        ('[{"data": {"volmin_row": 0, "volmin_given": "a"}, "annotations": [{}]}]', "no list called result"),
        (
            '[{"data": {"volmin_row": 0, "volmin_given": "a"},'
            ' "annotations": [{"result": [{"type": "rectanglelabels", "value": {"x": 1}}]}]}]',
            "no choices",
        ),
        ('[{"volmin_row": 0, "volmin_given": "a", "label": ["a", "b"]}]', "2 choices"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "export.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_annotations(path)
    assert "\n" not in str(error.value)


def test_misfitting_examples_are_refused(audited, tmp_path):
    found, frame, _ = audited
    with pytest.raises(InputError, match="a row for each"):
        tasks(found, frame[:5])
    with pytest.raises(InputError, match="examples or images"):
        tasks(found)
    with pytest.raises(InputError, match="an image for each"):
        tasks(found, images=["a"])
    with pytest.raises(InputError, match="no column"):
        tasks(found, frame, show="colour")
    with pytest.raises(DataError, match="no file"):
        read_annotations(tmp_path / "none.json")


def exported(number: int, data: dict[str, Any], name: str, shown: str, label: str | None) -> dict[str, Any]:
    """A task of an existing project in the documented form of the JSON export."""
    result = [
        {
            "id": f"r{number}",
            "from_name": name,
            "to_name": shown,
            "type": "choices",
            "origin": "manual",
            "value": {"choices": [label]},
        }
    ]
    annotation = {
        "id": 1000 + number,
        "completed_by": {"id": 1, "email": "a@example.org"},
        "result": result if label else [],
        "was_cancelled": label is None,
        "ground_truth": False,
        "created_at": "2024-03-09T21:52:49.513742Z",
        "lead_time": 27.8,
        "prediction": {},
        "result_count": 0,
        "parent_annotation": None,
    }
    return {
        "id": number,
        "annotations": [annotation],
        "file_upload": "tasks.json",
        "drafts": [],
        "predictions": [
            {"model_version": "one", "score": 0.5, "result": [{**result[0], "value": {"choices": ["other"]}}]}
        ],
        "data": data,
        "meta": {},
        "created_at": "2024-03-09T21:52:40.101881Z",
        "updated_at": "2024-03-09T21:52:49.513742Z",
        "project": 25,
        "comment_count": 0,
    }


@pytest.mark.parametrize(("name", "shown"), [("sentiment", "text"), ("choice", "image")])
def test_tasks_of_a_project_come_in_and_go_back_to_it(tmp_path, name, shown):
    generator = np.random.default_rng(0)
    words = {"Positive": ["great", "love", "fine"], "Negative": ["bad", "broken", "awful"], "Neutral": ["box", "day"]}
    truth = generator.choice(list(words), 240)
    given = np.where(generator.random(240) < 0.12, generator.permutation(truth), truth)
    texts = [" ".join(generator.choice([*words[label], "the", "it", "was", "very"], 8)) for label in truth]
    shows = texts if shown == "text" else [f"https://example.org/{row}.jpg" for row in range(240)]
    content = [
        exported(
            row, {shown: shows[row], "meta_info": {"source": "shop"}}, name, shown, given[row] if row % 30 else None
        )
        for row in range(240)
    ]
    project = tmp_path / "project.json"
    project.write_text(json.dumps(content))
    frame = read_tasks(project)
    assert frame.columns == [shown, "meta_info", "label"]
    assert frame[shown].to_list() == shows
    assert frame["label"].to_list() == [label if row % 30 else None for row, label in enumerate(given)]
    found = volmin.audit(frame["label"], features=pl.DataFrame({"text": texts}), model="logistic", random_state=0)
    config = write_tasks(tmp_path / "tasks.json", found, frame.drop("label"), show=shown, choice=name)
    assert f'name="{name}" toName="{shown}"' in config
    made = json.loads((tmp_path / "tasks.json").read_text())
    for task in made:
        assert set(task) == {"data", "predictions"}
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"], result["type"]) == (name, shown, "choices")
        assert 0 <= prediction["score"] <= 1
    answers = {task["data"]["volmin_row"]: str(truth[task["data"]["volmin_row"]]) for task in made}
    back = [exported(k, task["data"], name, shown, answers[task["data"]["volmin_row"]]) for k, task in enumerate(made)]
    (tmp_path / "export.json").write_text(json.dumps(back))
    corrected = apply_decisions(frame["label"], read_annotations(tmp_path / "export.json"))
    assert {row: corrected.labels[row] for row in answers} == answers
    short = [task["data"] | {"id": k, name: answers[task["data"]["volmin_row"]]} for k, task in enumerate(made)]
    (tmp_path / "min.json").write_text(json.dumps(short))
    again = apply_decisions(frame["label"], read_annotations(tmp_path / "min.json", choice=name))
    assert again.labels.tolist() == corrected.labels.tolist()


def test_several_annotators_skips_and_other_controls(tmp_path):
    """A skip beside an answer is no vote, differing answers settle nothing, and only the named choice counts."""

    def result(name, value):
        return {"from_name": name, "to_name": "text", "type": "choices", "value": {"choices": [value]}}

    def annotation(*answers, skipped=False):
        notes = {"from_name": "why", "to_name": "text", "type": "textarea", "value": {"text": ["see above"]}}
        parts = [notes, result("language", "en"), *(result("label", answer) for answer in answers)]
        return {"id": 1, "completed_by": 2, "result": [] if skipped else parts, "was_cancelled": skipped}

    skip = annotation(skipped=True)
    cases = [[annotation("b"), skip], [annotation("a"), annotation("b")], [skip, skip], [annotation("a")] * 2, []]
    made = [
        {"id": row, "data": {"text": "t", ROW: row, GIVEN: "a"}, "annotations": found, "predictions": [7], "drafts": []}
        for row, found in enumerate(cases)
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(made))
    decisions = read_annotations(path)
    assert decisions["decision"].to_list() == ["wrong", "unsure", "unsure", "right"]
    assert read_tasks(path, choice="label")["label"].to_list() == ["b", None, None, "a", None]
    assert read_tasks(path)["label"].to_list() == ["en", "en", None, "en", None]
    short = [{"text": "t", ROW: row, GIVEN: "a", "label": label} for row, label in [(0, "b"), (1, "a"), (1, "b")]]
    path.write_text(json.dumps([*short, {"text": "t", ROW: 2, GIVEN: "a", "annotator": 1}]))
    assert read_annotations(path)["decision"].to_list() == ["wrong", "unsure"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no tasks"),
        ('[{"text": "a", "label": "b"}]', "not as JSON-MIN"),
        ('[{"data": {"label": "a"}}]', "another name"),
    ],
)
def test_tasks_that_cannot_be_a_table_are_refused(tmp_path, content, message):
    (tmp_path / "tasks.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_tasks(tmp_path / "tasks.json")
