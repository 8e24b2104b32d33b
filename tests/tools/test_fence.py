"""Turnlog's own data, which file tools cannot reach wherever their workspace is."""

import os

import pytest

from turnlog.access import own_files
from turnlog.settings import load
from turnlog.tools import Toolbox, file_tools

from .contexts import run

TOKEN = "tl_administrators_token"


class Place:
    """A person's home directory with the data directory in it, and tools that work there."""

    def __init__(self, root, *, store=None, env=None, config=""):
        self.root = root
        self.home = root / ".turnlog"
        self.store = store
        self.env = env or {}
        for folder in ("memory", "workspace", "agents/main/sessions"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        for name in ("memory/sessions.db", "admin.token", "agents/main/sessions/s1.jsonl"):
            (self.home / name).write_text(TOKEN)
        (self.home / "config.toml").write_text(config)

    def use(self, tool, path, workspace=None, **given):
        settings = load(home=self.home, env={}, flags={"store.url": self.store})
        box = Toolbox(file_tools(workspace or self.root, own_files.fence(settings, self.env)))
        return run(box, tool, {"path": path, **given})

    def refuses(self, path, workspace=None):
        before = contents(self.root)
        for tool, given in (("read_file", {}), ("list_dir", {}), ("write_file", {"content": "emptied"})):
            result = self.use(tool, path, workspace, **given)
            assert result.is_error, f"{tool} {path}"
            assert TOKEN not in result.content
        assert contents(self.root) == before
        return "Turnlog's own data" in self.use("write_file", path, workspace, content="x").content


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize(
    "path",
    [
        ".turnlog/memory/sessions.db",
        ".turnlog/memory/sessions.db-wal",
        ".turnlog/memory/sessions.db-journal",
        ".turnlog/memory/convlog.db",
        ".turnlog/memory/memory.db",
        ".turnlog/config.toml",
        ".turnlog/admin.token",
        ".turnlog/agents/main/sessions/s1.jsonl",
        ".turnlog/anything/new/at/all.txt",
        ".turnlog//./admin.token",
    ],
)
def test_the_data_directory_in_a_workspace_is_closed(place, path):
    assert place.refuses(path)


def test_the_data_directory_is_listed_by_name_and_not_opened(place):
    assert place.use("list_dir", ".").content == ".turnlog (closed: Turnlog's own data)"
    assert place.use("list_dir", ".turnlog").is_error
    assert place.use("list_dir", ".turnlog/memory").is_error


def test_a_workspace_inside_the_data_directory_is_open_from_wherever_it_is_reached(place):
    assert not place.use("write_file", "a.txt", place.home / "workspace", content="1").is_error
    assert place.use("read_file", ".turnlog/workspace/a.txt").content == "1"
    assert not place.use("write_file", "workspace/sub/b.txt", place.home, content="2").is_error
    assert place.use("list_dir", "workspace", place.home).content.split() == ["a.txt", "1", "sub/"]


@pytest.mark.parametrize("inside", [".turnlog", ".turnlog/memory", ".turnlog/agents/main"])
def test_a_chat_that_is_started_inside_the_data_directory_reaches_nothing_of_it(place, inside):
    names = {".turnlog": "admin.token", ".turnlog/memory": "sessions.db", ".turnlog/agents/main": "sessions/s1.jsonl"}
    assert place.refuses(names[inside], place.root / inside)
    assert place.use("list_dir", ".", place.root / inside).is_error


def test_links_of_both_kinds_lead_nowhere(place):
    os.link(place.home / "admin.token", place.root / "innocent.txt")
    os.link(place.home / "agents/main/sessions/s1.jsonl", place.root / "notes.txt")
    (place.root / "link").symlink_to(place.home)
    (place.root / "link.txt").symlink_to(place.home / "admin.token")
    assert place.refuses("innocent.txt")
    assert place.refuses("notes.txt")
    place.refuses("link/admin.token")
    place.refuses("link.txt")


def test_a_workspace_that_is_a_link_into_the_data_directory_is_closed(place):
    (place.root / "elsewhere").symlink_to(place.home)
    assert place.refuses("admin.token", place.root / "elsewhere")


def test_a_configuration_that_is_kept_elsewhere_is_closed_there_too(place):
    real = place.root / "dotfiles" / "turnlog.toml"
    real.parent.mkdir()
    (place.home / "config.toml").rename(real)
    (place.home / "config.toml").symlink_to(real)
    assert place.refuses("dotfiles/turnlog.toml")
    assert not place.use("write_file", "dotfiles/other.toml", content="1").is_error


@pytest.mark.parametrize("moved", ["agents", "agents/main", "agents/main/sessions", "memory"])
@pytest.mark.parametrize("store", [None, "jsonl:{}/.turnlog", "jsonl:{}/.turnlog?layout=openclaw"])
def test_data_that_a_link_in_the_data_directory_leads_to_is_closed_there_too(tmp_path, moved, store):
    place = Place(tmp_path, store=store and store.format(tmp_path))
    (place.home / moved).rename(tmp_path / "larger")
    (place.home / moved).symlink_to(tmp_path / "larger")
    [found] = [path for path in (tmp_path / "larger").rglob("s*") if path.is_file()]
    assert place.refuses(str(found.relative_to(tmp_path)))
    assert place.refuses(str(found.relative_to(tmp_path / "larger")), tmp_path / "larger")


def test_transcripts_of_an_agent_on_another_disk_are_closed_also_beside_a_workspace(tmp_path):
    place = Place(tmp_path, store=f"jsonl:{tmp_path}/store")
    (tmp_path / "larger/sessions").mkdir(parents=True)
    (tmp_path / "larger/sessions/s1.jsonl").write_text(TOKEN)
    (tmp_path / "store/agents").mkdir(parents=True)
    (tmp_path / "store/agents/main").symlink_to(tmp_path / "larger")
    (tmp_path / "mine").mkdir()
    (tmp_path / "store/notes").symlink_to(tmp_path / "mine")
    assert place.refuses("larger/sessions/s1.jsonl")
    assert not place.use("write_file", "mine/notes.md", content="1").is_error


def test_a_workspace_that_the_data_directory_links_to_stays_open(place):
    (place.root / "project").mkdir()
    (place.home / "workspace").rmdir()
    (place.home / "workspace").symlink_to(place.root / "project")
    assert not place.use("write_file", "project/a.txt", content="1").is_error
    assert not place.use("write_file", "a.txt", place.home / "workspace", content="1").is_error


def test_a_second_name_of_somebody_elses_file_is_no_obstacle(place):
    (place.root / "a.txt").write_text("shared")
    os.link(place.root / "a.txt", place.root / "b.txt")
    assert place.use("read_file", "b.txt").content == "shared"


def test_a_database_in_the_workspace_is_closed_and_its_neighbours_are_not(tmp_path):
    place = Place(tmp_path, store=f"sqlite:{tmp_path}/chat.db")
    (tmp_path / "chat.db").write_text(TOKEN)
    for name in ("chat.db", "CHAT.DB", "chat.db-wal", "chat.db-leases/x.lock", "convlog.db", "memory.db-shm"):
        assert place.refuses(name), name
    assert not place.use("write_file", "chat.txt", content="1").is_error


@pytest.mark.parametrize("layout", ["", "?layout=claw0", "?layout=claw0-keyed", "?layout=zyhive", "?layout=openclaw"])
def test_a_directory_of_transcripts_in_the_workspace_is_closed_and_its_neighbours_are_not(tmp_path, layout):
    place = Place(tmp_path, store=f"jsonl:{tmp_path}{layout}")
    base = ".sessions/" if "claw0" in layout else ""
    for name in (f"{base}agents/main/sessions/s1.jsonl", f"{base}.turnlog/ledger.jsonl", "memory.db"):
        assert place.refuses(name), name
    assert not place.use("write_file", "notes.md", content="1").is_error


def test_a_whole_directory_of_pi_is_closed(tmp_path):
    place = Place(tmp_path, store=f"jsonl:{tmp_path}/pi?layout=pi")
    assert place.refuses("pi/--srv--/2024_x.jsonl")


def test_a_workspace_among_transcripts_is_not_opened_by_the_settings(tmp_path):
    config = f'[agents.a]\nworkspace = "{tmp_path}/.turnlog/agents/main"\n'
    config += f'[agents.b]\nworkspace = "{tmp_path}/.turnlog/agents/main/workspace"\n'
    config += f'[agents.c]\nworkspace = "{tmp_path}/.turnlog/memory"\n'
    place = Place(tmp_path, store=f"jsonl:{tmp_path}/.turnlog", config=config)
    assert place.refuses("sessions/s1.jsonl", place.home / "agents/main")
    assert not place.use("write_file", "x", place.home / "agents/main/workspace", content="1").is_error
    default = Place(tmp_path, config=config)
    assert default.refuses("sessions.db", place.home / "memory")
    assert not default.use("write_file", "mine.txt", place.home / "memory", content="1").is_error


def test_a_data_directory_that_is_not_there_yet_cannot_be_made(tmp_path):
    settings = load(home=tmp_path / "a" / "b" / ".turnlog", env={}, flags={"store.url": "memory:"})
    box = Toolbox(file_tools(tmp_path, own_files.fence(settings, {})))
    assert run(box, "write_file", {"path": "a/b/.turnlog/config.toml", "content": "x"}).is_error
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_requests_is_closed(tmp_path):
    place = Place(tmp_path, env={"TURNLOG_REQUEST_LOG": str(tmp_path / "requests.jsonl")})
    assert place.refuses("requests.jsonl")
