"""The turns of a conversation as token ids: what the model said stays the ids that it gave, so a cache that holds them
serves the next turn as it is."""

from __future__ import annotations

from collections.abc import Sequence

from model import prompt
from model.prompt import Message
from model.text import Text


class Conversation:
    """Prompts of one turn after the other, in the layout of `model.prompt`; ids equal those of its whole text, if the
    tokenizer gives a reply back as it was generated."""

    def __init__(self, text: Text, *, thinking: bool = False, system: str | None = None) -> None:
        self.text, self.thinking = text, thinking
        self._eos, self._end_think = text.encode(prompt.EOS), text.encode(prompt.END_THINK)
        self._system = [] if system is None else [Message("system", system)]
        self._ids: list[int] = []

    def ask(self, turn: str) -> list[int]:
        """The prompt whose last message is `turn`: everything from BOS on. Raises InputError as `prompt.render`."""
        first = not self._ids
        own = self.text.encode(prompt.render([*self._system, Message("user", turn)], thinking=self.thinking))
        if first:
            self._ids = own
        else:
            later = prompt.render([Message("user", turn)], thinking=self.thinking).removeprefix(prompt.BOS)
            self._ids = self._ids + self.text.encode(later)
        return list(self._ids)

    def answered(self, reply: Sequence[int]) -> None:
        """Take over the reply to the last prompt, EOS or not. In thinking mode its reasoning is dropped."""
        said = list(reply)
        if said[-1:] == self._eos:
            said.pop()
        if self.thinking:
            mark = self._end_think[0]
            said = said[said.index(mark) + 1 :] if mark in said else []
            self._ids = self._ids[:-1] + self._end_think
        self._ids += said + self._eos

    @property
    def lasting(self) -> int:
        """How much of the last prompt the next one begins with: all of it, but <think> at its end."""
        return len(self._ids) - 1 if self.thinking else len(self._ids)
