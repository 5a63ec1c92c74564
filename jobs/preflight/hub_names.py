"""Names of the Hugging Face hub, asked for before a job is queued that would only fail."""

import os
from typing import Literal

from jobs.specs.train import SpecError

MAX_SECONDS = 5.0


def refuse_unknown(
    field: str, source: str, revision: str | None = None, kind: Literal["model", "dataset"] = "model"
) -> None:
    """Refuse a source that is no file, no hub name, or one that the hub does not know.

    A hub that does not answer, or that must not be asked (`HF_HUB_OFFLINE`), refuses nothing: what is cached works.

    Raises:
        SpecError: It is neither; the sentence names the field.
    """
    if os.path.exists(source):
        return
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    expected = f"{field}: expected a file or folder that is there, or the name of a {kind} of the Hugging Face hub"
    try:
        HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=MAX_SECONDS)
    except hub.HFValidationError:
        raise SpecError(f"{expected}, got {source!r}.") from None
    except hub.RevisionNotFoundError:
        raise SpecError(f"{expected}; {source} has no revision {revision!r}.") from None
    except hub.GatedRepoError:
        raise SpecError(f"{field}: {source} is open only to those it admits; ask on the hub, and log in.") from None
    except hub.RepositoryNotFoundError:
        raise SpecError(f"{expected}; it knows no {source!r}, or hides it from you.") from None
    except (OSError, httpx.HTTPError, hub.HfHubHTTPError):
        return
