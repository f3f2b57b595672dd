"""The terms of a page, explained where they first appear: each is a link to all terms and shows its meaning."""

import re
from collections.abc import Callable

from markupsafe import Markup, escape

from linkscope.report.glossary import WORDS

_MEANINGS = dict(WORDS)
# What a reader of the first screens meets: the form in texts, and its entry among the terms.
_FORMS = (
    (r"pinned", "pinned"), (r"pageable", "pageable"), (r"managed", "managed"), (r"peer off", "peer on, off"),
    (r"initiator", "initiator src, dst"), (r"inherited", "inherited"), (r"missed precision", "missed precision"),
    (r"class", "class"), (r"peak", "peak"), (r"[Bb]atched", "batched"), (r"points?", "point"), (r"rounds?", "round"),
    (r"[Pp]lain cop(?:y|ies)", "plain copy"), (r"copy engines?", "ce"), (r"[Hh]alf rate", "half rate"),
    (r"half of (?:it|[0-9.]+ GB/s)", "half rate"), (r"Jain's index", "Jain's index"),
)  # fmt: skip


def explainer() -> Callable[[object], Markup]:
    """A filter for one page, which escapes a text and marks the first appearance of each term."""
    left = {entry: "|".join(form for form, of in _FORMS if of == entry) for _, entry in _FORMS}

    def explain(text: object) -> Markup:
        made = str(escape(text))
        for entry, forms in list(left.items()):
            # A term within the link of an earlier one, such as in its title, is no appearance.
            match = re.search(rf"(?<![\w-])({forms})(?![\w-])(?![^<]*>)(?![^<]*</a>)", made)
            if match is not None:
                link = Markup('<a class="term" href="#words" title="{}">').format(_MEANINGS[entry])
                made = f"{made[: match.start()]}{link}{match[1]}</a>{made[match.end() :]}"
                del left[entry]
        return Markup(made)

    return explain
