"""The training text of the bundled pair: Python's standard library sources, and the byte-level BPE made from them.

The selection depends on the Python that runs it (3.11.7 and 3.11.9 differ), never on where that Python is installed:
paths are relative to the library's folder and sorted, and generated files that hold build settings are left out.
"""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 2048
MAX_LENGTH = 2048
BOS, EOS, MASK = "<s>", "</s>", "<mask>"  # ids 0, 1, 2: the trainer numbers special tokens first
EOS_ID = 1

SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "encodings", "pydoc_data"})
SKIPPED_PREFIXES = ("test", "config-", "_sysconfigdata", "sitecustomize")


@dataclass(frozen=True)
class Corpus:
    """The chosen sources, in order, with the hash that says which they were."""

    texts: tuple[str, ...]
    sha256: str
    n_bytes: int

    def describe(self) -> dict[str, str | int]:
        """What training.json keeps of it."""
        return {"sha256": self.sha256, "files": len(self.texts), "bytes": self.n_bytes}


def is_chosen(relative: Path) -> bool:
    """Whether a file of the standard library (path relative to its folder) is training text."""
    if any(part.startswith(SKIPPED_PREFIXES) for part in relative.parts):
        return False
    return not SKIPPED_FOLDERS.intersection(relative.parts)


def read_corpus(library: Path | None = None, max_files: int | None = None) -> Corpus:
    """Read the chosen sources of `library` (default: this Python's), sorted by relative path.

    The hash runs over each file's relative path and bytes. Files that are not UTF-8 are left out.
    """
    root = library or Path(sysconfig.get_paths()["stdlib"])
    found = [path.relative_to(root) for pattern in ("*.py", "[a-z]*/*.py") for path in root.glob(pattern)]
    chosen = sorted((path for path in found if is_chosen(path)), key=Path.as_posix)[:max_files]
    digest = hashlib.sha256()
    texts: list[str] = []
    n_bytes = 0
    for path in chosen:
        raw = (root / path).read_bytes()
        try:
            texts.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            continue
        digest.update(path.as_posix().encode() + b"\0" + raw + b"\0")
        n_bytes += len(raw)
    return Corpus(tuple(texts), digest.hexdigest(), n_bytes)


def train_tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    """Byte-level BPE of VOCAB_SIZE; it adds no special token to a prompt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[BOS, EOS, MASK],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        mask_token=MASK,
        model_max_length=MAX_LENGTH,
    )


def encode(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    """All sources as one line of token ids, each source preceded by EOS."""
    ids: list[int] = []
    for text in corpus.texts:
        ids.append(EOS_ID)
        ids.extend(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)
    return np.array(ids, dtype=np.int64)
