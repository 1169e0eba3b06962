"""Text to token ids and back, with the `tokenizers` library and the `tokenizer.json` of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from model.config import Config
from model.errors import ConfigError
from model.prompt import BOS, EOS

FILE = "tokenizer.json"
TINY = Path(__file__).parent / "configs" / "tiny_tokenizer.json"
"""512 tokens for the tiny model: bytes, the tokens of the layout, and merges learnt from this project's own pages."""


class Text:
    """The tokenizer of one checkpoint. Tokens of the layout are recognised in the text; none is added."""

    def __init__(self, file: str | Path, config: Config) -> None:
        """Raises ConfigError for a file that is no tokenizer, or one whose ids are not those of the configuration."""
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises Exception itself
            raise ConfigError(f"{file}: {error}; wanted: a tokenizer of the `tokenizers` library") from error
        size = self._tokenizer.get_vocab_size()
        wrong = [f"{size} tokens; wanted: at most vocab_size={config.vocab_size}"] if size > config.vocab_size else []
        for token, wanted in ((BOS, config.bos_token_id), (EOS, config.eos_token_id)):
            found = self._tokenizer.token_to_id(token)
            if found != wanted:
                wrong.append(f"{token} is {'no token' if found is None else found}; wanted: {wanted}")
        if wrong:
            raise ConfigError(f"{file}: {'; '.join(wrong)}")

    @classmethod
    def beside(cls, folder: str | Path, config: Config) -> Text | None:
        """The tokenizer of the checkpoint in `folder`; None without a tokenizer.json."""
        file = Path(folder) / FILE
        return cls(file, config) if file.is_file() else None

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, tokens of the layout included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def stream(self) -> Pieces:
        """For text that comes token by token."""
        return Pieces(self._tokenizer)


class Pieces:
    """Text of one token after the other; a character of several tokens comes with its last one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def put(self, token: int) -> str:
        """The text that this token completes, which may be none."""
        return self._stream.step(self._tokenizer, token) or ""
