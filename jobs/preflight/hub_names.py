"""Check of names on the Hugging Face hub before a job is queued."""

import os
from typing import Literal

from jobs.pretrained.sources import is_converted
from jobs.specs.train import SpecError

MAX_SECONDS = 5.0


def refuse_unknown(
    field: str, source: str, revision: str | None = None, kind: Literal["model", "dataset"] = "model"
) -> None:
    """Refuse a source that is no file, no hub name, or one that the hub does not know.

    If the hub does not answer, or must not be used (`HF_HUB_OFFLINE`), nothing is refused: the cache may have it.

    Raises:
        SpecError: It is none of these; the sentence names the field.
    """
    if os.path.exists(source) or is_converted(source):
        return
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    expected = f"{field}: expected an existing file or folder, or the name of a {kind} of the Hugging Face hub"
    try:
        HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=MAX_SECONDS)
    except hub.HFValidationError:
        raise SpecError(f"{expected}, got {source!r}.") from None
    except hub.RevisionNotFoundError:
        raise SpecError(f"{expected}; {source} has no revision {revision!r}.") from None
    except hub.GatedRepoError:
        raise SpecError(f"{field}: {source} is gated; request access on the hub, and log in.") from None
    except hub.RepositoryNotFoundError:
        raise SpecError(f"{expected}; the hub has no {source!r}, or it is private.") from None
    except (OSError, httpx.HTTPError, hub.HfHubHTTPError):
        return
