"""Messages in the shapes of other APIs: `openai` (Chat Completions), `anthropic` (Messages), `responses` (items).

`reading` turns dicts of any of these shapes into entries, `writing` turns entries and histories into dicts of one
shape, and `replies` reads what an SDK gave as an answer, whole or in pieces. If a dict says something that an entry
cannot, the entry keeps the dict in `raw`, and it comes back word for word in its shape.
"""

from typing import Any, Literal, TypeAlias

MessageShape: TypeAlias = Literal["openai", "anthropic", "responses"]
MessageDict: TypeAlias = dict[str, Any]
"""One message, or one item of the Responses API."""


class ShapedMessages(list[MessageDict]):
    """Messages in one shape, to be given to an SDK as they are.

    `system`: the system prompt, which Anthropic's API and the Responses API take apart from the messages. In the shape
    `openai` it is also the first message.
    """

    def __init__(self, messages: list[MessageDict], *, system: str = "") -> None:
        super().__init__(messages)
        self.system = system
