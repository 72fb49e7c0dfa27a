"""Sentences and questions of our own tasks: short, of a fixed form, with slots for key, attribute and value."""

STATED = "The {attribute} of {key} is {value}."
"""States a value. One of the wordings of needles, too."""

CHANGED = "The {attribute} of {key} was changed to {value}."
"""Gives a key another value, which counts from there on."""

LINKED = "The {attribute} of {key} is the same as that of {origin}."
"""Gives a key the value of another one, which another sentence states."""

STATUS_ATTRIBUTE = "status"
"""Attribute with a label for a value."""

STATUSES = ("open", "closed", "pending", "frozen", "expired")
"""Labels of a status."""

ASKED = "What is the {attribute} of {key}?"
"""Asks for the value of a key."""

ASKED_LATEST = "What is the latest {attribute} of {key}?"
"""Asks for the value that a key has after all changes."""

NOT_STATED = "not stated"
"""The right answer where the document does not say."""

OR_NOT = " If the text does not state it, answer: " + NOT_STATED + "."
"""Follows a question that may have no answer."""
