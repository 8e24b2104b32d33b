"""The web page: its routes."""

from litestar import Router

from .approvals import approvals_page
from .chat import chat_page, count_tokens, home, session_list, window
from .chats import chats_page, log_drawer, session_drawer
from .entry import entry_picture, entry_text
from .erasing import erase_on_page, erasing_page
from .exchange import export_session, import_file, import_page, whole_entry
from .files import files_page, undo_on_page
from .forms import act
from .health import failures_page, health_page
from .live import live, say
from .many import change_many, sessions_csv
from .search import search_page
from .session import fidelity, original, saw_part, session_page
from .signin import prefer, sign_in, sign_in_page, sign_out
from .static import icon, static_file
from .tokens import create_token, revoke_token, tokens_page
from .usage import recount_usage, usage_page
from .view import answer_error

ROUTES = Router(
    "/",
    route_handlers=[
        *(home, chat_page, window, session_list, count_tokens, search_page, live, say),
        *(chats_page, session_drawer, log_drawer, change_many, sessions_csv),
        *(session_page, saw_part, original, fidelity, entry_text, entry_picture, act),
        *(export_session, whole_entry, import_page, import_file),
        *(erasing_page, erase_on_page),
        *(approvals_page, files_page, undo_on_page),
        *(usage_page, recount_usage, failures_page, health_page),
        *(tokens_page, create_token, revoke_token),
        *(sign_in_page, sign_in, sign_out, prefer),
        *(static_file, icon),
    ],
    exception_handlers={Exception: answer_error},
    include_in_schema=False,
)
