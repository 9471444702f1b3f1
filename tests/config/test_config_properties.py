"""Properties files that we write say what they were meant to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftpy.config.properties import format_properties, parse_properties

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(texts.filter(bool), texts))
def test_what_is_written_is_read(settings: dict[str, str]) -> None:
    text = format_properties(settings)
    assert {each.key: each.value for each in parse_properties(text)} == settings


def test_usual_lines_look_usual() -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:9092,C://[::1]:1", "a b": " c\\d\n#"}
    assert format_properties(settings).splitlines() == [
        "listeners=PLAINTEXT://127.0.0.1:9092,C://[::1]:1",
        r"a\ b=\ c\\d\n#",
    ]
