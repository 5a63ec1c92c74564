"""Times of day and dates, such as `9:30 pm`, `3 pm on Tuesday` and `June 20th, 2020`."""

import re
from calendar import monthrange
from dataclasses import dataclass
from itertools import product

from exgrpo.jobs.tasks.grading.plain_text import plain_words

_HALVES = {
    "am": "am", "pm": "pm", "noon": "pm", "midnight": "am", "in the morning": "am", "in the afternoon": "pm",
    "in the evening": "pm", "at night": "night",
}  # fmt: skip
_CLOCK = re.compile(
    r"(?<![\d:.\w])(?:(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?!\s*[\d:.])\s*(?P<whole>o'?clock)?\s*"
    r"(?P<half>(?:am|pm|noon|midnight|in the (?:morning|afternoon|evening)|at night)\b)?|(?P<word>noon|midnight)\b)",
    re.IGNORECASE,
)
_DAY = re.compile(r"\b(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?\b", re.IGNORECASE)
_ZONE = re.compile(r"\b(?:UTC|GMT|[ECMP][SD]?T|CET|BST|IST|JST)\b")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<month>(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))"
)
_DATE_DAY = r"(?:the\s+)?(?P<day>\d{1,2})\s*(?:\^?\s*\{?(?:st|nd|rd|th)\}?)?"
_YEAR = r"(?:(?:\s*,\s*|\s+)(?:of\s+)?(?P<year>\d{4}))?"
_NAMED_DATES = tuple(
    re.compile(pattern + _YEAR, re.IGNORECASE)
    for pattern in (rf"{_MONTH}\s*{_DATE_DAY}", rf"{_DATE_DAY}(?:\s+of)?\s*{_MONTH}", _MONTH)
)
_ISO_DATE = re.compile(r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})")
_SHORT_DATE = re.compile(r"(?P<first>\d{1,2})([-/.])(?P<second>\d{1,2})(?:\2(?P<year>\d{4}))?")


@dataclass(frozen=True, slots=True)
class _Date:
    year: int | None
    month: int
    day: int | None


def compare_moments(gold: str, answer: str) -> bool | None:
    """Return whether two times of day or dates are the same, None if neither is written as one."""
    texts = plain_words(gold), plain_words(answer)
    by_date = _compare_dates(*texts)
    return _compare_clocks(*texts) if by_date is None else by_date


def _compare_clocks(gold: str, answer: str) -> bool | None:
    clocks = [[*_CLOCK.finditer(text)] for text in (gold, answer)]
    if len(clocks[0]) != 1 or len(clocks[1]) != 1:
        return None
    left, right = clocks[0][0], clocks[1][0]
    rests = [_CLOCK.sub(" ", text) for text in (gold, answer)]
    are_named = [bool(clock["half"] or clock["whole"] or clock["word"]) for clock in (left, right)]
    # Next to other words a number is a time only with its half of the day or minutes: 3 of 3 apples is none.
    are_times = [
        named or not rest.strip() or (clock["minute"] and _DAY.search(rest))
        for named, rest, clock in zip(are_named, rests, (left, right), strict=True)
    ]
    if not any(are_named) or not all(are_times):
        return None
    for pattern in (_DAY, _ZONE):
        named = [{match[0].casefold()[:3] for match in pattern.finditer(rest)} for rest in rests]
        if all(named) and named[0] != named[1]:
            return False
    return gold == answer or not _minutes(left).isdisjoint(_minutes(right))


def _minutes(clock: re.Match[str]) -> set[int]:
    """Return the minutes since midnight that are meant, none of an hour such as 13 pm."""
    hour, minute = int(clock["hour"] or 12), int(clock["minute"] or 0)
    half = _HALVES.get((clock["half"] or clock["word"] or "").lower(), "")
    if half == "night":
        half = "am" if hour % 12 < 6 else "pm"
    if minute > 59 or hour > 23 + (not half and not minute) or (half and hour > 12) or (half == "pm" and not hour):
        return set()
    if not half:
        return (
            {60 * (hour % 12) + minute, 60 * (hour % 12 + 12) + minute}
            if 0 < hour < 13
            else {(60 * hour + minute) % 1440}
        )
    return {60 * (hour % 12 + 12 * (half == "pm")) + minute}


def _compare_dates(gold: str, answer: str) -> bool | None:
    days = [{match[0].casefold()[:3] for match in _DAY.finditer(text)} for text in (gold, answer)]
    left, right = (_read_dates(_DAY.sub("", text).strip(" ,")) for text in (gold, answer))
    if not left or not right or not any(_is_named(text) for text in (gold, answer)):
        return None
    if all(days) and days[0] != days[1]:
        return False
    pairs = [*product(left, right)]
    if any(one == other for one, other in pairs):
        return True
    # A date without its year, or a month without its day, leaves the verdict to the texts.
    is_open = any(_agree(one, other) for one, other in pairs)
    return None if is_open else False


def _agree(one: _Date, other: _Date) -> bool:
    days, years = {one.day, other.day}, {one.year, other.year}
    return one.month == other.month and (None in days or len(days) == 1) and (None in years or len(years) == 1)


def _is_named(text: str) -> bool:
    return re.search("[A-Za-z]", text) is not None or _ISO_DATE.search(text) is not None


def _read_dates(text: str) -> list[_Date]:
    """Return the dates that a text can mean: 6/7/2020 is in June or in July."""
    named = next(filter(None, (pattern.fullmatch(text) for pattern in _NAMED_DATES)), None)
    if named is not None:
        groups = named.groupdict()
        month = 1 + _MONTHS.index(groups["month"][:3].lower())
        found = [(groups["year"], month, groups.get("day"))]
    elif iso := _ISO_DATE.fullmatch(text):
        found = [(iso["year"], int(iso["month"]), iso["day"])]
    elif short := _SHORT_DATE.fullmatch(text):
        numbers = short["first"], short["second"]
        found = [(short["year"], int(month), day) for month, day in (numbers, numbers[::-1])]
    else:
        return []
    dates = [_Date(int(year) if year else None, month, int(day) if day else None) for year, month, day in found]
    return [date for date in dates if 1 <= date.month <= 12 and _is_day(date)]


def _is_day(date: _Date) -> bool:
    return date.day is None or 1 <= date.day <= monthrange(date.year or 2024, date.month)[1]
