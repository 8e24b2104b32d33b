"""The files of the workspace, and no others."""

import ctypes
import os
import re
import resource
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from turnlog.errors import UsageError
from turnlog.tools import BUILT_IN_MAX_CHARS, Toolbox, file_tools, files
from turnlog.tools.files import LIST_MAX
from turnlog.tools.writing import WRITE_MAX_BYTES

from ..waiting import GIVES_UP_S
from .contexts import run

SECRET = "the secret outside"
SWAPPED_ROUNDS = 100


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.txt").write_text(SECRET)
    work = tmp_path / "work"
    work.mkdir()
    (work / "sub").mkdir()
    (work / "sub" / "notes.txt").write_text("first\nsecond\nthird\n")
    (work / "link.txt").symlink_to(tmp_path / "secret.txt")
    (work / "up").symlink_to(tmp_path)
    (work / "inner").symlink_to(work / "sub")
    (work / "dangling").symlink_to(tmp_path / "made.txt")
    return work


def use(root, name, **given):
    return run(Toolbox(file_tools(root)), name, given)


def test_a_file_is_read_and_a_directory_listed(root):
    assert use(root, "read_file", path="sub/notes.txt").content == "first\nsecond\nthird\n"
    assert use(root, "read_file", path="./sub//./notes.txt").content == "first\nsecond\nthird\n"
    assert use(root, "list_dir", path="sub").content == "notes.txt 19"
    assert use(root, "list_dir").content.splitlines() == [
        "dangling (symbolic link, not followed)",
        "inner (symbolic link, not followed)",
        "link.txt (symbolic link, not followed)",
        "sub/",
        "up (symbolic link, not followed)",
    ]


def test_reading_and_listing_may_run_beside_each_other_and_writing_may_not(root):
    box = Toolbox(file_tools(root))
    assert {spec.name: box.is_parallel(spec.name) for spec in box.specs} == {
        "edit_file": False,
        "list_dir": True,
        "read_file": True,
        "write_file": False,
    }


HOSTILE = [
    "../secret.txt",
    "sub/../../secret.txt",
    "sub/..",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "link.txt",
    "up/secret.txt",
    "up/work/sub/notes.txt",
    "inner/notes.txt",
    "dangling",
    "dangling/x",
    "link.txt/x",
    "a\0b",
    "x" * 300,
    "x/" * 100 + "y",
    "x" * 10_000,
    "",
    ".",
    "/",
    "sub/",
]


@pytest.mark.parametrize("tool_name", ["read_file", "list_dir", "write_file"])
@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path[:20]))
def test_no_path_leads_out_of_the_workspace(root, tool_name, path):
    before = sorted(root.parent.rglob("*"))
    given = {"path": path, "content": "mine"} if tool_name == "write_file" else {"path": path}
    result = use(root, tool_name, **given)
    if tool_name == "list_dir" and path in ("", ".", "sub/"):
        assert not result.is_error  # the workspace and a directory in it
        return
    assert result.is_error
    assert SECRET not in result.content
    assert str(root.parent) not in result.content
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert not (root.parent / "made.txt").exists()
    after = [path for path in sorted(root.parent.rglob("*")) if not path.is_relative_to(root / "x")]
    assert after == before


def test_a_link_is_called_a_link(root):
    for path in ("link.txt", "up/secret.txt"):
        assert "symbolic link" in use(root, "read_file", path=path).content
        assert "symbolic link" in use(root, "write_file", path=path, content="").content


libc = ctypes.CDLL(None)


@pytest.mark.skipif(not hasattr(libc, "renameat2"), reason="names cannot be exchanged at once")
@pytest.mark.parametrize("swapped", ["sub", "sub/notes.txt"])
def test_what_is_swapped_for_a_link_again_and_again_never_leads_out(root, swapped):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "notes.txt").write_text(SECRET)
    (root / "trap").symlink_to(outside / Path(swapped).relative_to("sub"))
    names = os.fsencode(root / swapped), os.fsencode(root / "trap")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            assert libc.renameat2(-100, names[0], -100, names[1], 2) == 0  # both at once: RENAME_EXCHANGE

    swapper = threading.Thread(target=swap)
    swapper.start()
    box = Toolbox(file_tools(root))
    try:
        deadline = time.monotonic() + GIVES_UP_S
        rounds = good = refused = 0
        while rounds < SWAPPED_ROUNDS or not (good and refused):
            assert time.monotonic() < deadline, "never swapped at the right moment"
            rounds += 1
            read = run(box, "read_file", {"path": "sub/notes.txt"})
            assert SECRET not in read.content
            good += not read.is_error
            refused += "symbolic link" in read.content
            run(box, "write_file", {"path": "sub/new.txt", "content": "mine"})
            assert SECRET not in run(box, "list_dir", {"path": "sub"}).content
    finally:
        stop.set()
        swapper.join()
    assert os.listdir(outside) == ["notes.txt"]
    assert (outside / "notes.txt").read_text() == SECRET


def test_special_files_are_refused_and_never_waited_for(root):
    os.mkfifo(root / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)  # a socket's path has to be short
    try:
        listener.bind("socket")
    finally:
        os.chdir(here)
    for name in ("pipe", "socket", "sub"):
        for tried in (use(root, "read_file", path=name), use(root, "write_file", path=name, content="x")):
            assert tried.is_error
            assert "no answer within" not in tried.content
    listener.close()
    assert "pipe (special file)" in use(root, "list_dir").content


def test_a_device_is_not_read():
    result = use("/dev", "read_file", path="zero")
    assert "not a regular file" in result.content


def test_a_long_file_is_read_in_parts_that_join_to_the_whole(root):
    lines = [f"line {n} {'é' * (n % 90)}" for n in range(1, 6_001)]
    (root / "long.txt").write_text("\n".join(lines) + "\n")
    seen, offset = [], 1
    while True:
        part = use(root, "read_file", path="long.txt", offset=offset).content
        assert len(part) <= BUILT_IN_MAX_CHARS
        body, mark, note = part.rpartition("\n[lines ")
        seen.extend((body if mark else part).removesuffix("\n").split("\n"))
        if not mark:
            break
        offset = int(note.rpartition("offset=")[2].rstrip("]"))
    assert seen == lines


def test_lines_are_shown_from_where_and_as_many_as_asked(root):
    part = use(root, "read_file", path="sub/notes.txt", offset=2, limit=1).content
    assert part == "second\n[lines 2 to 2 of sub/notes.txt, 19 bytes in all; go on with offset=3]"
    assert use(root, "read_file", path="sub/notes.txt", offset=3).content == "third\n"
    assert "fewer than 9 lines" in use(root, "read_file", path="sub/notes.txt", offset=9).content
    assert "fewer than 4 lines" in use(root, "read_file", path="sub/notes.txt", offset=4).content
    assert use(root, "read_file", path="sub/notes.txt", offset=0).is_error
    (root / "empty").touch()
    assert use(root, "read_file", path="empty").content == "(empty file)"


def test_a_line_without_end_is_cut(root):
    (root / "one.txt").write_text("x" * 200_000 + "\nafter")
    content = use(root, "read_file", path="one.txt").content
    assert len(content) <= BUILT_IN_MAX_CHARS
    assert "cannot be shown" in content
    assert "offset=2" in content
    assert use(root, "read_file", path="one.txt", offset=2).content == "after"


def bytes_read():
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])


def test_a_huge_file_is_not_read_whole(root, monkeypatch):
    with open(root / "huge.txt", "wb") as file:
        file.write(b"top\n" * 20_000)
        file.truncate(200 * 1024**3)  # sparse: 200 GiB of NULs after the first lines
    before = bytes_read()
    content = use(root, "read_file", path="huge.txt").content
    assert bytes_read() - before < 10_000_000
    assert content.startswith("top\n")
    assert "214,748,364,800 bytes" in content
    assert len(content) <= BUILT_IN_MAX_CHARS
    monkeypatch.setattr(files, "SCAN_MAX_BYTES", 100_000_000)
    far = use(root, "read_file", path="huge.txt", offset=10_000_000)
    assert bytes_read() - before < 200_000_000
    assert far.is_error
    assert "too far" in far.content


@pytest.mark.parametrize("raw", [b"\x89PNG\r\n\x1a\n\0\0", b"caf\xe9\n", b"text\n" * 10 + b"\xff", b"cut \xe7\x81"])
def test_what_is_no_text_is_described(root, raw):
    (root / "blob").write_bytes(raw)
    result = use(root, "read_file", path="blob")
    assert not result.is_error
    assert result.content.startswith(
        f"blob is not UTF-8 text. It has {len(raw)} bytes and begins with {raw[:4].hex(' ')}"
    )


def test_a_character_across_two_reads_is_whole(root):
    text = "a" + "灯" * 30_000
    (root / "cjk.txt").write_text(text)
    assert use(root, "read_file", path="cjk.txt").content == text


def test_a_file_is_written_with_the_directories_it_needs(root):
    result = use(root, "write_file", path="a/b/c.txt", content="grüße\n")
    assert result.content == "created a/b/c.txt: 8 bytes"
    assert (root / "a/b/c.txt").read_text() == "grüße\n"
    assert os.listdir(root / "a/b") == ["c.txt"]


def test_writing_replaces_the_file_and_not_what_else_has_its_content(root):
    os.link(root.parent / "secret.txt", root / "hard.txt")
    os.chmod(root / "hard.txt", 0o640)
    assert use(root, "write_file", path="hard.txt", content="new").content.startswith("replaced")
    assert (root.parent / "secret.txt").read_text() == SECRET
    assert stat.S_IMODE(os.stat(root / "hard.txt").st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_the_umask(root):
    before = os.umask(0o027)
    try:
        use(root, "write_file", path="d/new.txt", content="")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(root / "d/new.txt").st_mode) == 0o640
    assert stat.S_IMODE(os.stat(root / "d").st_mode) == 0o750


def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(root):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        result = use(root, "write_file", path="sub/notes.txt", content="x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.is_error
    assert "File too large" in result.content
    assert os.listdir(root / "sub") == ["notes.txt"]
    assert (root / "sub" / "notes.txt").read_text() == "first\nsecond\nthird\n"


def test_a_file_beyond_the_limit_is_refused(root):
    assert use(root, "write_file", path="big", content="x" * (WRITE_MAX_BYTES + 1)).is_error
    assert not (root / "big").exists()


def test_text_that_cannot_be_encoded_is_written_readable(root):
    use(root, "write_file", path="s.txt", content="a\ud800b")
    assert (root / "s.txt").read_text() == "a?b"


def test_a_large_directory_is_listed_in_order_and_in_bounds(root):
    many = root / "many"
    many.mkdir()
    for n in range(LIST_MAX + 50):
        (many / f"{n:05}").touch()
    lines = use(root, "list_dir", path="many").content.splitlines()
    assert lines[0] == "00000 0"
    assert lines[LIST_MAX - 1] == f"{LIST_MAX - 1:05} 0"
    assert lines[LIST_MAX:] == [f"[50 more, of {LIST_MAX + 50:,} in all]"]


def test_names_stay_on_one_line_whatever_they_hold(root):
    for name in (b"two\nlines", b"esc\x1b[31m", b"bad\xff", "灯塔".encode()):
        with open(os.path.join(os.fsencode(root / "sub"), name), "wb"):
            pass
    lines = use(root, "list_dir", path="sub").content.splitlines()
    assert lines == ["bad\\udcff 0", "esc\\x1b[31m 0", "notes.txt 19", "two\\nlines 0", "灯塔 0"]


def test_what_is_missing_or_forbidden_is_an_error_result_without_a_path_of_this_machine(root):
    for path in ("none.txt", "none/there.txt", "sub/notes.txt/x"):
        result = use(root, "read_file", path=path)
        assert result.is_error
        assert result.content.startswith(path)
        assert str(root) not in result.content


def test_a_missing_workspace_is_made_private_and_a_file_in_its_place_refused(tmp_path):
    file_tools(tmp_path / "a" / "w")
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "w").st_mode) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be the workspace"):
        file_tools(tmp_path / "file")


def test_a_workspace_that_vanished_is_an_error_result(tmp_path):
    box = Toolbox(file_tools(tmp_path / "w"))
    (tmp_path / "w").rmdir()
    for name in ("read_file", "list_dir"):
        assert run(box, name, {"path": "x"}).is_error
    assert run(box, "write_file", {"path": "x", "content": ""}).is_error


def test_no_descriptor_is_left_open(root):
    box = Toolbox(file_tools(root))
    before = len(os.listdir("/proc/self/fd"))
    for path in [*HOSTILE, "sub/notes.txt", "new.txt"]:
        for name in ("read_file", "list_dir"):
            run(box, name, {"path": path})
        run(box, "write_file", {"path": path, "content": "x"})
    assert len(os.listdir("/proc/self/fd")) == before
