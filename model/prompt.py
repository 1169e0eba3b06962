"""DeepSeek-V4's prompt layout: which text stands for a conversation, in chat mode and in thinking mode.

    BOS {system}<|User|>{user}<|Assistant|></think>{answer}EOS<|User|>...                       chat
    BOS {system}<|User|>{user}<|Assistant|><think>{reasoning}</think>{answer}EOS<|User|>...     thinking

Nothing stands between the parts: no newline, no space. A prompt to be answered ends behind `</think>` (chat) or
`<think>` (thinking). Reasoning before the last user message is left out, so in thinking mode those turns look as in
chat mode; a conversation with tools keeps it. The bars of the tokens are full-width (U+FF5C), the lines U+2581.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model.errors import InputError

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"

Role = Literal["system", "user", "assistant"]
Mode = Literal["raw", "chat", "thinking"]
MODES: dict[Mode, str] = {
    "raw": "the text alone behind BOS, to be continued",
    "chat": "a turn that is answered at once",
    "thinking": "a turn whose answer begins with reasoning",
}


@dataclass(frozen=True)
class Message:
    """One turn. `reasoning` belongs to assistants only: what stood between <think> and </think>."""

    role: Role
    content: str
    reasoning: str = ""


def render(messages: Sequence[Message], *, thinking: bool = False, keep_reasoning: bool = False) -> str:
    """The text of a conversation: an optional system message, then user and assistant in turn.

    A conversation that ends with a user message is a prompt to be answered. `keep_reasoning`: of all turns, as tools
    want it; without effect in chat mode. Raises InputError that names the message.
    """
    _check(messages)
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    parts = [BOS]
    for i, message in enumerate(messages):
        if message.role == "system":
            parts.append(message.content)
        elif message.role == "user":
            parts += [USER, message.content, ASSISTANT]
        else:
            shown = thinking and (keep_reasoning or i > users[-1])
            parts += [THINK + message.reasoning if shown else "", END_THINK, message.content, EOS]
    if messages[-1].role == "user":
        parts.append(THINK if thinking else END_THINK)
    return "".join(parts)


def split(answer: str, *, thinking: bool) -> Message:
    """What the model said behind a prompt of `render`, as the message that belongs into the next one."""
    text = answer.removesuffix(EOS)
    if not thinking:
        return Message("assistant", text)
    reasoning, _, content = text.partition(END_THINK)
    return Message("assistant", content, reasoning)


def _check(messages: Sequence[Message]) -> None:
    """Roles in an order that has a layout, and no text that would end or begin a turn by itself."""
    if not messages:
        raise InputError("messages: none; allowed: at least one user message")
    turns = list(messages[1:] if messages[0].role == "system" else messages)
    if not turns:
        raise InputError("messages: a system message alone; allowed: at least one user message")
    offset = len(messages) - len(turns)
    for i, message in enumerate(turns):
        wanted = "assistant" if i % 2 else "user"
        if message.role != wanted:
            raise InputError(f"message {offset + i}: role {message.role!r}; allowed: {wanted!r}")
    for i, message in enumerate(messages):
        if message.reasoning and message.role != "assistant":
            raise InputError(f"message {i}: reasoning of a {message.role}; allowed: of an assistant")
        for token in (BOS, EOS, USER, ASSISTANT):
            if token in message.content or token in message.reasoning:
                raise InputError(f"message {i}: contains {token}; allowed: text without the tokens of the layout")
