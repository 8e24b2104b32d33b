"""The order of the events of /v1/responses, as a machine: raises at the first event that is out of order."""

TERMINAL = {"response.completed": ("completed",), "response.incomplete": ("incomplete",)}
TERMINAL["response.failed"] = ("failed", "cancelled")


class Machine:
    """Give it every (event, data); `final` is the response of the terminal event."""

    def __init__(self, first=0):
        self.state, self.next, self.final = "start" if first == 0 else "running", first, None
        self.open, self.done, self.texts = {}, [], {}
        self.resumed = first > 0

    def take(self, name, data):
        assert name == data["type"]
        assert data["sequence_number"] == self.next, "numbers have no gap"
        self.next += 1
        assert self.state != "over", "nothing follows the end"
        short = name.removeprefix("response.")
        match short:
            case "created":
                assert (self.state, data["response"]["status"], data["response"]["output"]) == (
                    "start",
                    "in_progress",
                    [],
                )
                self.state = "created"
            case "in_progress":
                assert self.state in ("created", "running")
                self.state = "running"
            case "completed" | "incomplete" | "failed":
                self._end(name, data["response"])
            case "output_item.added":
                self._add(data)
            case "output_item.done":
                self._finish(data)
            case _:
                if not self.resumed:
                    self._inside(short, data)
        return self

    def _end(self, name, response):
        assert self.state == "running"
        assert response["status"] in TERMINAL[name]
        assert not self.open, "every item is done"
        if not self.resumed:
            assert response["output"] == self.done
        self.state, self.final = "over", response

    def _add(self, data):
        assert self.state == "running"
        item, index = data["item"], data["output_index"]
        if not self.resumed:
            assert index == len(self.done) + len(self.open)
            assert all(kind == "function_call" for kind, _, _ in self.open.values()), "only calls overlap"
        self.open[index] = (item["type"], item["id"], [])

    def _finish(self, data):
        item, index = data["item"], data["output_index"]
        if self.resumed:
            self.open.pop(index, None)
            return
        kind, item_id, inside = self.open.pop(index)
        assert (item["type"], item["id"]) == (kind, item_id)
        assert not inside or inside[-1].endswith("done")
        said = self.texts.get(index, "")
        match kind:
            case "message":
                assert "".join(part["text"] for part in item["content"]) == said
            case "function_call":
                assert item["arguments"] == (said or "{}")
            case "reasoning":
                assert "".join(part["text"] for part in item["summary"]) == said
            case "compaction":
                assert item["encrypted_content"].startswith("tlc1.")
        self.done.append(item)

    def _inside(self, short, data):
        index = data["output_index"]
        kind, item_id, inside = self.open[index]
        assert data["item_id"] == item_id
        last = inside[-1] if inside else ""
        before = BEFORE[kind][short]
        assert last in before, f"{short} after {last or 'the beginning'}"
        if short.endswith(".delta"):
            self.texts[index] = self.texts.get(index, "") + data["delta"]
        inside.append(short)


MESSAGE = {
    "content_part.added": ("", "content_part.done"),
    "output_text.delta": ("content_part.added", "output_text.delta"),
    "output_text.done": ("output_text.delta",),
    "content_part.done": ("output_text.done",),
}
CALL = {
    "function_call_arguments.delta": ("", "function_call_arguments.delta"),
    "function_call_arguments.done": ("", "function_call_arguments.delta"),
}
REASONING = {
    "reasoning_summary_part.added": ("",),
    "reasoning_summary_text.delta": ("reasoning_summary_part.added", "reasoning_summary_text.delta"),
    "reasoning_summary_text.done": ("reasoning_summary_text.delta",),
    "reasoning_summary_part.done": ("reasoning_summary_text.done",),
}
BEFORE = {"message": MESSAGE, "function_call": CALL, "reasoning": REASONING}


def follow(events, first=0):
    machine = Machine(first)
    for name, data in events:
        machine.take(name, data)
    assert machine.state == "over"
    return machine.final
