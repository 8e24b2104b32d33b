"""Writing files: what is refused, the diff that a person sees, and the way back."""

import asyncio
import os
import stat

import pytest

from turnlog import Conflict, NotFound, tool
from turnlog.tools import ApprovalPolicy, Context, Toolbox, file_tools
from turnlog.tools.approval import judge
from turnlog.tools.kept import DAYS, FILE_MAX_BYTES, KeptFiles


async def nothing(*_):
    return []


CONTEXT = Context(session_id="s1", agent="main", search=nothing, read=nothing)


@pytest.fixture
def kept(tmp_path):
    return KeptFiles(tmp_path / "kept")


@pytest.fixture
def use(tmp_path, kept):
    box = Toolbox(file_tools(tmp_path / "work", kept=kept))

    def call(name, **given):
        return asyncio.run(box.run({"id": "c", "name": name, "input": given}, CONTEXT))

    call.box = box
    return call


@pytest.mark.parametrize("path", [".bashrc", ".git/hooks/pre-commit", "a/.env"])
def test_dotfiles_and_hidden_directories_are_refused_and_nothing_is_made(tmp_path, use, path):
    assert use("write_file", path=path, content="x").is_error
    assert list((tmp_path / "work").iterdir()) == []


def test_an_executable_file_is_refused(tmp_path, use):
    script = tmp_path / "work" / "run.sh"
    script.write_text("echo")
    script.chmod(0o755)
    assert "executable" in use("write_file", path="run.sh", content="x").content
    assert use("edit_file", path="run.sh", old="echo", new="rm").is_error
    assert script.read_text() == "echo"


def test_a_passage_is_replaced_only_if_it_occurs_once(tmp_path, use):
    (tmp_path / "work" / "a.txt").write_text("one two two")
    assert use("edit_file", path="a.txt", old="two", new="x").content.startswith("the text occurs 2 times")
    assert use("edit_file", path="a.txt", old="", new="x").is_error
    assert use("edit_file", path="b.txt", old="a", new="x").content.startswith("b.txt does not exist")
    assert not use("edit_file", path="a.txt", old="one", new="1").is_error
    assert (tmp_path / "work" / "a.txt").read_text() == "1 two two"


def test_the_person_who_is_asked_sees_a_diff(tmp_path, use):
    (tmp_path / "work" / "a.txt").write_text("old\nsame\n")

    def preview(name, **given):
        return asyncio.run(use.box.preview({"name": name, "input": given}))

    assert preview("write_file", path="a.txt", content="new\nsame\n").splitlines()[3:] == ["-old", "+new", " same"]
    assert preview("edit_file", path="a.txt", old="old", new="new").splitlines()[3:] == ["-old", "+new", " same"]
    assert preview("write_file", path="a.txt", content="old\nsame\n") == "(no change)"
    assert preview("write_file", path="n.txt", content="x").startswith("--- /dev/null")
    assert "occurs" in preview("edit_file", path="a.txt", old="zz", new="x")
    assert preview("write_file", path="a.txt", content="x" * 600_000).startswith("a.txt: ")


def test_the_former_content_is_kept_and_comes_back(tmp_path, use, kept):
    file = tmp_path / "work" / "a.txt"
    file.write_text("first")
    use("write_file", path="a.txt", content="second")
    use("write_file", path="b.txt", content="new")
    [(newest, _), (path, record)] = kept.records()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (record.path, record.session) == ("a.txt", "s1")
    kept.undo(path="a.txt")
    assert file.read_text() == "first"
    kept.undo()
    assert not (tmp_path / "work" / "b.txt").exists()
    assert not newest.exists()
    with pytest.raises(NotFound):
        kept.undo()


def test_a_file_that_changed_since_is_not_undone_unasked(tmp_path, use, kept):
    file = tmp_path / "work" / "a.txt"
    use("write_file", path="a.txt", content="theirs")
    file.write_text("mine")
    with pytest.raises(Conflict):
        kept.undo()
    kept.undo(force=True)
    assert not file.exists()


def test_what_is_too_large_or_too_old_is_not_kept(tmp_path, use, kept):
    (tmp_path / "work" / "a.txt").write_text("x" * (FILE_MAX_BYTES + 1))
    assert "too large to be kept" in use("write_file", path="a.txt", content="y").content
    assert kept.records() == []
    use("write_file", path="b.txt", content="y")
    [(path, _)] = kept.records()
    os.rename(path, path.with_name(f"{int(path.name[:13]) - (DAYS + 1) * 86_400_000:013d}-0.json"))
    use("write_file", path="c.txt", content="y")
    assert [record.path for _, record in kept.records()] == ["c.txt"]
    kept.forget("s1")
    assert kept.records() == []


def look() -> str:
    return "seen"


@pytest.mark.parametrize(
    ("options", "mode", "verdict"),
    [
        ({}, "writes", "run"),
        ({}, "all", "ask"),
        ({"effects": ["reads"]}, "writes", "run"),
        ({"effects": ["reads", "writes"]}, "writes", "ask"),
        ({"effects": ["runs"]}, "writes", "ask"),
        ({"effects": ["runs"]}, "none", "run"),
        ({"approval": True}, "none", "ask"),
        ({"approval": False, "effects": ["writes"]}, "all", "run"),
        ({"approval": lambda given: given["n"] > 1}, "none", "ask"),
        ({"approval": lambda given: given["n"] > 5}, "writes", "run"),
        ({"approval": lambda given: given["missing"]}, "none", "ask"),
    ],
)
def test_effects_and_the_setting_decide_which_calls_wait(options, mode, verdict):
    made = tool(look, **options)
    assert judge(made, {"n": 3}, ApprovalPolicy(mode=mode)).verdict == verdict


def test_lists_decide_last_and_deny_before_allow():
    made = tool(look, effects=["writes"])
    policy = ApprovalPolicy(allow=('look(path="docs/**")',), deny=('look(path="docs/secret/**")',))
    assert judge(made, {"path": "docs/a"}, policy).verdict == "run"
    assert judge(made, {"path": "docs/secret/a"}, policy).verdict == "deny"
    assert judge(made, {"path": "src/a"}, policy).verdict == "ask"
    assert judge(made, {"path": "src/a"}, policy, ["look"]).verdict == "run"


def test_no_list_reaches_through_a_link_or_out_of_the_workspace(tmp_path, use):
    """A pattern sees the path that the model wrote; so the tool follows no link and takes no other spelling."""
    work = tmp_path / "work"
    (work / "secret").mkdir()
    (work / "docs").mkdir()
    (work / "docs" / "link").symlink_to(work / "secret")
    (work / "docs" / "file").symlink_to(work / "secret" / "x")
    (tmp_path / "outside").mkdir()
    (work / "out").symlink_to(tmp_path / "outside")
    for path in ("docs/link/x", "docs/file", "out/x", "docs/../secret/x", str(work / "secret" / "x"), "../outside/x"):
        assert use("write_file", path=path, content="y").is_error, path
    assert list((work / "secret").iterdir()) == []
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    ("hints", "trusted", "effects"),
    [
        (None, True, ("writes",)),
        ({}, True, ("writes",)),
        ({"readOnlyHint": True}, True, ("reads",)),
        ({"readOnlyHint": False}, True, ("writes",)),
        ({"readOnlyHint": True, "destructiveHint": True}, True, ("writes",)),
        ({"readOnlyHint": True, "destructiveHint": False}, True, ("reads",)),
        ({"destructiveHint": False}, True, ("writes",)),
        ({"idempotentHint": True}, True, ("writes",)),
        ({"readOnlyHint": True}, False, ("writes",)),
    ],
)
def test_a_servers_hints_say_whether_its_tool_writes_unless_they_are_not_trusted(hints, trusted, effects):
    types = pytest.importorskip("mcp.types")
    from turnlog.tools.mcp import McpSettings, _effects

    annotations = None if hints is None else types.ToolAnnotations.model_validate(hints)
    told = types.Tool(name="t", inputSchema={"type": "object"}, annotations=annotations)
    assert _effects(McpSettings(command=["x"], trust_hints=trusted), told) == effects
