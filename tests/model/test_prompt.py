"""The prompt layout, to the byte: what DeepSeek's own encoder writes for chat and thinking mode."""

from __future__ import annotations

import pytest

from model.config import Config
from model.conversation import Conversation
from model.errors import ConfigError, InputError
from model.prompt import Message, render, split
from model.text import TINY, Text

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, HI, WHY = Message("system", "Be brief."), Message("user", "Hi"), Message("user", "Why?")
ANSWER = Message("assistant", "Hello.", "a greeting")


@pytest.fixture(scope="module")
def text(config: Config) -> Text:
    return Text(TINY, config)


@pytest.mark.parametrize(
    ("messages", "thinking", "wanted"),
    [
        ([HI], False, f"{BOS}<｜User｜>Hi<｜Assistant｜></think>"),
        ([HI], True, f"{BOS}<｜User｜>Hi<｜Assistant｜><think>"),
        ([SYSTEM, HI], False, f"{BOS}Be brief.<｜User｜>Hi<｜Assistant｜></think>"),
        (
            [HI, ANSWER, WHY],
            False,
            f"{BOS}<｜User｜>Hi<｜Assistant｜></think>Hello.{EOS}<｜User｜>Why?<｜Assistant｜></think>",
        ),
        # the reasoning of an earlier turn is gone, and the turn looks as in chat mode
        (
            [SYSTEM, HI, ANSWER, WHY],
            True,
            f"{BOS}Be brief.<｜User｜>Hi<｜Assistant｜></think>Hello.{EOS}<｜User｜>Why?<｜Assistant｜><think>",
        ),
        # a conversation that ends with an answer keeps that answer's
        ([HI, ANSWER], True, f"{BOS}<｜User｜>Hi<｜Assistant｜><think>a greeting</think>Hello.{EOS}"),
        ([HI, ANSWER], False, f"{BOS}<｜User｜>Hi<｜Assistant｜></think>Hello.{EOS}"),
    ],
)
def test_layout(messages: list[Message], thinking: bool, wanted: str) -> None:
    assert render(messages, thinking=thinking) == wanted


def test_with_tools_all_reasoning_stays() -> None:
    kept = render([HI, ANSWER, WHY], thinking=True, keep_reasoning=True)
    assert kept.startswith(f"{BOS}<｜User｜>Hi<｜Assistant｜><think>a greeting</think>Hello.{EOS}<｜User｜>Why?")


def test_an_answer_is_split_where_thinking_ends() -> None:
    assert split(f"a greeting</think>Hello.{EOS}", thinking=True) == ANSWER
    assert split(f"Hello.{EOS}", thinking=False) == Message("assistant", "Hello.")
    # the length ended it while it was thinking
    assert split("a gree", thinking=True) == Message("assistant", "", "a gree")


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages: none; allowed: at least one user message"),
        ([SYSTEM], "a system message alone"),
        ([ANSWER], "message 0: role 'assistant'; allowed: 'user'"),
        ([SYSTEM, HI, WHY], "message 2: role 'user'; allowed: 'assistant'"),
        ([HI, ANSWER, SYSTEM], "message 2: role 'system'; allowed: 'user'"),
        ([Message("user", "Hi", "hm")], "message 0: reasoning of a user; allowed: of an assistant"),
        ([Message("user", f"{BOS}Hi")], f"message 0: contains {BOS}"),
        ([HI, Message("assistant", f"x{EOS}y"), WHY], f"message 1: contains {EOS}"),
    ],
)
def test_what_has_no_layout_is_refused(messages: list[Message], said: str) -> None:
    with pytest.raises(InputError) as caught:
        render(messages)
    assert said in str(caught.value)


def test_tokens_of_the_layout_are_one_id_each_and_none_is_added(text: Text) -> None:
    ids = text.encode(render([HI], thinking=True))
    assert ids[0] == 0 and ids[1] == 3 and ids[-2:] == [4, 5] and 2 <= len(ids) <= 6
    assert text.decode(ids) == render([HI], thinking=True)
    assert text.encode("") == []


def test_a_character_of_several_tokens_is_shown_once_it_is_whole(text: Text) -> None:
    said = "Grüße, 北京 🙂"
    ids, pieces = text.encode(said), text.stream()
    shown = [pieces.put(t) for t in ids]
    assert "".join(shown) == said and "" in shown and "\ufffd" not in "".join(shown)


@pytest.mark.parametrize("thinking", [False, True])
def test_ids_of_three_turns_are_those_of_the_whole_text(text: Text, thinking: bool) -> None:
    talk = Conversation(text, thinking=thinking, system="Be brief.")
    messages, asked = [SYSTEM], ["Hi", "Why?", "Grüße"]
    for turn in asked:
        messages.append(Message("user", turn))
        assert talk.ask(turn) == text.encode(render(messages, thinking=thinking))
        reply = text.encode("hm</think>Because.") if thinking else text.encode("Because.")
        talk.answered(reply + ([1] if turn == "Hi" else []))
        messages.append(split(text.decode(reply), thinking=thinking))


@pytest.mark.parametrize("thinking", [False, True])
def test_the_lasting_part_of_a_prompt_begins_the_next_one(text: Text, thinking: bool) -> None:
    talk = Conversation(text, thinking=thinking)
    ids = talk.ask("Hi")
    lasting = talk.lasting
    talk.answered(text.encode("so"))
    assert talk.ask("Why")[:lasting] == ids[:lasting]
    assert lasting == len(ids) - (1 if thinking else 0)


def test_a_tokenizer_of_another_model_is_refused(config: Config, tmp_path) -> None:
    from dataclasses import replace

    with pytest.raises(ConfigError, match="512 tokens; wanted: at most vocab_size=256"):
        Text(TINY, replace(config, vocab_size=256))
    with pytest.raises(ConfigError, match="is 1; wanted: 7"):
        Text(TINY, replace(config, eos_token_id=7))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="wanted: a tokenizer"):
        Text.beside(tmp_path, config)
    assert Text.beside(tmp_path / "none", config) is None
