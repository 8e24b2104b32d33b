"""What the page says, in English and in Chinese. Both languages name the same fields (a test compares them)."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

Language: TypeAlias = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
LANGUAGE_MAX_CHARS = 200
"""Of an Accept-Language header, what is looked at."""

CATALOGUE: dict[str, tuple[str, str]] = {
    "skip": ("Skip to content", "跳到正文"),
    "nav": ("Main", "主导航"),
    "chat": ("Chat", "聊天"),
    "chats": ("Chats", "会话总览"),
    "sign_out": ("Sign out", "退出登录"),
    "to_dark": ("Switch to dark colours", "切换到深色"),
    "to_light": ("Switch to light colours", "切换到浅色"),
    "other_language": ("中文", "English"),
    "signed_in_as": ("Signed in as {name}", "已登录：{name}"),
    "signin_title": ("Sign in", "登录"),
    "signin_lead": (
        "Turnlog keeps conversations with your agents. Sign in to go on.",
        "Turnlog 保存你与智能体的对话。请登录后继续。",
    ),
    "signin_link": ("This link signs you in once.", "此链接可登录一次。"),
    "signin_go": ("Continue", "继续"),
    "signin_token": ("Access token", "访问令牌"),
    "signin_or": ("Or paste an access token", "或粘贴访问令牌"),
    "signin_where": (
        "The administrator's token is in the file admin.token of the data directory. "
        "turnlog token create makes further ones.",
        "管理员令牌在数据目录的 admin.token 文件中；用 turnlog token create 可创建更多令牌。",
    ),
    "signin_refused": (
        "This link or token lets nobody in. A link works once and for a day.",
        "此链接或令牌无效。链接只能使用一次，有效期一天。",
    ),
    "signin_button": ("Sign in", "登录"),
    "new_chat": ("New chat", "新对话"),
    "sessions": ("Sessions", "会话"),
    "open_sessions": ("Show sessions", "显示会话列表"),
    "close": ("Close", "关闭"),
    "search_sessions": ("Search titles and messages", "搜索标题与消息"),
    "in_messages": ("In messages", "消息中"),
    "nothing_found": ("Nothing fits “{q}”.", "没有符合“{q}”的内容。"),
    "no_sessions": ("No sessions yet. Your first message begins one.", "还没有会话。发送第一条消息即可开始。"),
    "more": ("Show more", "显示更多"),
    "trash_open": ("Trash", "回收站"),
    "trash_back": ("Back to sessions", "返回会话列表"),
    "trash_empty": ("The trash is empty.", "回收站是空的。"),
    "agent": ("Agent", "智能体"),
    "untitled": ("Untitled", "未命名"),
    "empty_title": ("What would you like to talk about?", "想聊点什么？"),
    "empty_offline": (
        "Say something: the offline model answers at once from what it can see. It understands nothing, but everything "
        "around it is real: words are stored before they are answered, and old parts are folded when space runs out.",
        "说点什么吧：离线模型会根据它看到的内容立即回答。它并不理解内容，但其余一切都是真的："
        "你的话在回答之前就已保存，空间不足时旧内容会被压缩。",
    ),
    "empty_model": (
        "{model} answers. Your words are stored before they are answered; nothing is forgotten silently.",
        "由 {model} 回答。你的话在回答之前就已保存，不会被悄悄遗忘。",
    ),
    "try": ("Try", "试试"),
    "try_1": ("My name is Ada.", "我叫小雅。"),
    "try_2": ("What is my name?", "我叫什么名字？"),
    "try_3": ("List the files", "列出文件"),
    "message": ("Message", "消息"),
    "message_hint": ("Enter sends, Shift+Enter starts a new line", "Enter 发送，Shift+Enter 换行"),
    "message_placeholder": ("Write a message…", "输入消息…"),
    "send": ("Send", "发送"),
    "stop": ("Stop", "停止"),
    "needs_script": (
        "Reading works without JavaScript; writing needs it.",
        "不启用 JavaScript 也可阅读；发送消息需要启用它。",
    ),
    "cannot_write": ("You can read this session but not write to it.", "你可以阅读此会话，但不能写入。"),
    "is_trashed": ("This session is in the trash.", "此会话在回收站中。"),
    "answering": ("Answering…", "正在回答…"),
    "waiting": ("Waiting its turn", "等待中"),
    "queued": ("Waiting: {n} before this one", "排队中：前面还有 {n} 条"),
    "thinking": ("Thinking", "思考"),
    "reconnecting": ("Connection lost. Coming back…", "连接中断，正在恢复…"),
    "failed_send": ("The message was not sent: {error}", "消息未发送：{error}"),
    "compacting": ("Folding older messages to make room…", "正在压缩较早的消息…"),
    "tool_running": ("running", "运行中"),
    "tool_done": ("done", "完成"),
    "tool_failed": ("failed", "失败"),
    "tool_input": ("Input", "输入"),
    "tool_output": ("Output", "输出"),
    "tool_no_output": ("No output yet.", "尚无输出。"),
    "you": ("You", "你"),
    "assistant": ("Assistant", "助手"),
    "tool": ("Tool", "工具"),
    "context": ("Context", "上下文"),
    "context_of": ("~{used} of {window} tokens", "约 {used} / {window} 词元"),
    "actions": ("Actions", "操作"),
    "rename": ("Rename", "改名"),
    "title": ("Title", "标题"),
    "save": ("Save", "保存"),
    "fork": ("Fork", "分叉"),
    "fork_hint": ("A new session with the same past", "以相同的过去开始新会话"),
    "compact": ("Compact now", "立即压缩"),
    "compact_hint": ("Fold older messages under a summary", "将较早的消息压缩为摘要"),
    "delete": ("Delete", "删除"),
    "delete_hint": ("Goes to the trash", "移到回收站"),
    "restore": ("Restore", "恢复"),
    "erase": ("Delete for good", "永久删除"),
    "erase_sure": ("Erase this session for good? It cannot be undone.", "永久删除此会话？此操作无法撤销。"),
    "details": ("Details", "详情"),
    "details_hint": ("Timeline, tokens, what the model saw", "时间线、词元与模型所见"),
    "continue_chat": ("Continue", "继续对话"),
    "earlier": ("Earlier messages are in the session view", "更早的消息见会话详情"),
    "compacted": ("Folded {n} entries", "已压缩 {n} 条"),
    "compaction": ("Compaction", "压缩"),
    "tokens_change": ("{before} → {after} tokens", "{before} → {after} 词元"),
    "tokens_saved": ("{n} saved", "节省 {n}"),
    "trigger_manual": ("by hand", "手动"),
    "trigger_tokens": ("too many tokens", "词元过多"),
    "trigger_messages": ("too many messages", "消息过多"),
    "trigger_window": ("window nearly full", "窗口将满"),
    "trigger_overflow": ("did not fit", "超出窗口"),
    "trigger_rescue": ("rescue, without a model", "救援，未用模型"),
    "summary": ("Summary", "摘要"),
    "show_original": ("Show original", "显示原文"),
    "original": ("Original messages", "原始消息"),
    "undo": ("Undo", "撤销"),
    "undo_label": ("Undo this compaction", "撤销此次压缩"),
    "undone": ("undone", "已撤销"),
    "under": ("folded again later", "之后再次压缩"),
    "note_shortened": ("{n} tool results shown shortened", "{n} 个工具结果已缩短显示"),
    "note_pin": ("Pinned entry {n}", "已固定第 {n} 条"),
    "note_unpin": ("Unpinned entry {n}", "已取消固定第 {n} 条"),
    "note_rewind": ("Rewound to entry {n}", "已回退到第 {n} 条"),
    "note_undo": ("Undid entry {n}", "已撤销第 {n} 条"),
    "note_status": ("Status: {value}", "状态：{value}"),
    "note_title": ("Titled “{title}”", "标题：“{title}”"),
    "note_opened": ("Session opened at {key}", "会话开始于 {key}"),
    "note_selected": ("Selected for its key", "已选为当前会话"),
    "note_foreign": ("An entry of another tool, kept as it is", "其他工具的条目，原样保留"),
    "note_failed": ("This turn ended without an answer", "本轮没有得到回答"),
    "forked_from": ("Forked from {id} at entry {seq}", "分叉自 {id} 的第 {seq} 条"),
    "partial": ("interrupted", "已中断"),
    "rewound": ("rewound", "已回退"),
    "folded": ("folded", "已压缩"),
    "pinned": ("pinned", "已固定"),
    "long_text": ("{n} characters in all.", "共 {n} 个字符。"),
    "whole_text": ("Show the whole text", "显示全文"),
    "image": ("Image", "图片"),
    "chats_lead": ("Every session and every channel log, newest first.", "所有会话与频道记录，最新的在前。"),
    "filter": ("Filter", "筛选"),
    "filters": ("Filters", "筛选"),
    "all": ("All", "全部"),
    "type": ("Type", "类型"),
    "type_session": ("Sessions", "会话"),
    "type_log": ("Channel logs", "频道记录"),
    "type_trash": ("Trash", "回收站"),
    "one_session": ("Session", "会话"),
    "one_log": ("Log", "记录"),
    "member": ("Member", "成员"),
    "channel": ("Channel", "频道"),
    "keyword": ("Keyword", "关键词"),
    "keyword_placeholder": ("Title, id, or words in a log", "标题、编号或记录中的文字"),
    "sort": ("Sort", "排序"),
    "sort_last": ("Last active", "最近活动"),
    "sort_messages": ("Messages", "消息数"),
    "sort_tokens": ("Tokens", "词元数"),
    "sorted_among": (
        "Sorted among the newest {n} that fit; narrow the filters to sort others.",
        "仅在符合条件的最新 {n} 个中排序；缩小筛选范围可对其余排序。",
    ),
    "messages": ("Messages", "消息"),
    "tokens": ("Tokens", "词元"),
    "last_active": ("Last active", "最近活动"),
    "total": ("{n} in all", "共 {n} 个"),
    "no_chats": ("Nothing fits these filters.", "没有符合条件的内容。"),
    "no_chats_hint": ("Take a filter away, or begin a conversation in Chat.", "请减少筛选条件，或在聊天中开始对话。"),
    "clear_filters": ("Clear filters", "清除筛选"),
    "next_page": ("Older", "更早"),
    "first_page": ("Newest", "最新"),
    "compactions_n": ("compacted {n}×", "压缩 {n} 次"),
    "to_chat": ("Back to the chat", "返回对话"),
    "preview": ("Preview", "预览"),
    "choose_one": ("Choose a row to read the conversation here.", "选择一行即可在此阅读对话。"),
    "live": ("Live", "实时"),
    "live_on": ("Live: new entries appear by themselves", "实时：新条目会自动出现"),
    "log_lead": ("What was said on this channel. Agents cannot read it.", "该频道上说过的内容。智能体无法读取。"),
    "oldest_first": ("{shown} of {n} messages", "{n} 条消息中的 {shown} 条"),
    "newer": ("Newer", "较新"),
    "session_view": ("Session", "会话详情"),
    "timeline": ("Timeline", "时间线"),
    "saw": ("What the model saw", "模型所见"),
    "saw_at": ("What the model saw at turn {n}", "第 {n} 轮时模型所见"),
    "saw_lead": (
        "Exactly what is sent, rebuilt from the log as it was then.",
        "根据当时的记录重建，与发送的内容完全一致。",
    ),
    "saw_size": ("{n} messages, about {tokens} tokens", "{n} 条消息，约 {tokens} 词元"),
    "system_prompt": ("System prompt", "系统提示"),
    "no_system": ("No system prompt.", "没有系统提示。"),
    "tools": ("Tools", "工具"),
    "turn": ("Turn", "轮次"),
    "turn_n": ("Turn {n}", "第 {n} 轮"),
    "previous": ("Previous turn", "上一轮"),
    "next": ("Next turn", "下一轮"),
    "show": ("Show", "显示"),
    "plot": ("Tokens per turn", "每轮词元数"),
    "plot_lead": ("How full the context was at the end of each turn.", "每轮结束时上下文的大小。"),
    "plot_point": ("Turn {n}: {tokens} tokens", "第 {n} 轮：{tokens} 词元"),
    "plot_fold": ("Compaction: {before} → {after} tokens", "压缩：{before} → {after} 词元"),
    "plot_window": ("window {n}", "窗口 {n}"),
    "plot_empty": ("The plot begins with the first turn.", "第一轮之后开始绘制。"),
    "plot_cut": ("Only the newest {n} turns are drawn.", "仅绘制最新的 {n} 轮。"),
    "plot_table": ("As a table", "以表格显示"),
    "older_entries": ("Older entries", "较早的条目"),
    "newest_entries": ("Newest entries", "最新的条目"),
    "turns": ("Turns", "轮次"),
    "compactions": ("Compactions", "压缩"),
    "status": ("Status", "状态"),
    "status_active": ("active", "当前"),
    "status_inactive": ("inactive", "非当前"),
    "status_archived": ("archived", "已归档"),
    "status_trashed": ("in the trash", "回收站"),
    "created": ("Created", "创建"),
    "key": ("Key", "键"),
    "error": ("That did not work", "操作未成功"),
    "back": ("Back to Chat", "返回聊天"),
    "hit_of": ("in {title}", "见 {title}"),
}


class Texts:
    """The texts of one language: `t("rename")`, `t("total", n=3)`. Values are put in as they are and escaped later."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language
        self._index = LANGUAGES.index(language)

    def known(self, name: str) -> bool:
        return name in CATALOGUE

    def __call__(self, name: str, /, **values: Any) -> str:
        text = CATALOGUE[name][self._index]
        return text.format_map(values) if values else text


TEXTS: Mapping[str, Texts] = {language: Texts(language) for language in LANGUAGES}


def choose(chosen: str | None, accepted: str) -> Texts:
    """What somebody chose, or the first language of theirs that there is."""
    if chosen and chosen in TEXTS:
        return TEXTS[chosen]
    for part in accepted[:LANGUAGE_MAX_CHARS].split(","):
        language = part.partition(";")[0].strip().lower()[:2]
        if language in TEXTS:
            return TEXTS[language]
    return TEXTS["en"]
