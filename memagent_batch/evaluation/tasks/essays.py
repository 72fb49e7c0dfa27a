"""The running texts that needles are hidden in: a folder that the user names, or the project's own prose."""

import hashlib

from memagent_batch.errors import InputError
from memagent_batch.evaluation.needles.prose import PARAGRAPHS
from memagent_batch.evaluation.tasks.haystacks import sentences_of
from memagent_batch.evaluation.tasks.sample import EssayTexts
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.listing import list_files

ESSAY_ENDINGS = (".txt", ".md")
"""Files of an essays folder that are read."""


def own_texts() -> EssayTexts:
    """The prose that comes with the project."""
    return PARAGRAPHS


def read_essays(folder: Location) -> EssayTexts:
    """The text files of a folder and of all below it, in the order of their paths, as sentences.

    Raises:
        InputError: there is no such folder, no text in it, or a file that is not UTF-8; names it.
    """
    texts = []
    for file in list_files(folder):
        if not file.name.endswith(ESSAY_ENDINGS):
            continue
        place = folder.at(file.path)
        with input_errors(place.uri):
            data = place.read_bytes()
        try:
            sentences = sentences_of(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise InputError(f"{place.uri}: invalid UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
        if sentences:
            texts.append(sentences)
    if not texts:
        raise InputError(f"--essays: {folder.uri} holds no text in {' or '.join(ESSAY_ENDINGS)} files; add some")
    return tuple(texts)


def texts_sha256(texts: EssayTexts) -> str:
    """Hash of all sentences in their order, 64 hex digits."""
    return hashlib.sha256("\0".join("\n".join(text) for text in texts).encode()).hexdigest()
