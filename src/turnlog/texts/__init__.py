"""Everything that the page, the terminal and the channels say to people, in English and in Chinese.

One table: part → name → (English, Chinese). A test checks that every text exists in both languages with the same
placeholders, and that every text is used. Lines that programs read are not here, for they are not translated.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from . import approval, chat_page

Language: TypeAlias = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
Part: TypeAlias = Literal["page", "terminal", "channel"]
ACCEPTED_MAX_CHARS = 200
"""How much of an Accept-Language header is read."""

PAGE: dict[str, tuple[str, str]] = {
    **approval.PAGE,
    **chat_page.PAGE,
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
        "Turnlog keeps conversations with your agents. Sign in to continue.",
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
        "This link has expired or was already used, or the token is wrong. A link works once, within a day.",
        "此链接已过期或已被使用，或令牌有误。链接只能使用一次，有效期一天。",
    ),
    "signin_button": ("Sign in", "登录"),
    "new_chat": ("New chat", "新对话"),
    "sessions": ("Sessions", "会话"),
    "open_sessions": ("Show sessions", "显示会话列表"),
    "close": ("Close", "关闭"),
    "search_sessions": ("Search titles and messages", "搜索标题与消息"),
    "in_messages": ("In messages", "消息中"),
    "nothing_found": ("Nothing matches “{q}”.", "没有符合“{q}”的内容。"),
    "no_sessions": ("No sessions yet. Your first message starts one.", "还没有会话。发送第一条消息即可开始。"),
    "more": ("Show more", "显示更多"),
    "trash_open": ("Trash", "回收站"),
    "trash_back": ("Back to sessions", "返回会话列表"),
    "trash_empty": ("The trash is empty.", "回收站是空的。"),
    "agent": ("Agent", "智能体"),
    "untitled": ("Untitled", "未命名"),
    "empty_title": ("What would you like to talk about?", "想聊点什么？"),
    "empty_offline": (
        "Say something: the offline model answers at once from what its prompt shows. It understands nothing, but "
        "everything else is real: each message is stored before it is answered, and older messages are compacted when "
        "the window is full.",
        "说点什么吧：离线模型会根据它看到的内容立即回答。它并不理解内容，但其余一切都是真的："
        "每条消息在回答之前就已保存，窗口将满时会压缩较早的消息。",
    ),
    "client": ("Client", "客户端"),
    "clients_lead": (
        "Clients of OpenAI's or Anthropic's protocol, with the token “{name}”:",
        "使用 OpenAI 或 Anthropic 协议的客户端（令牌“{name}”）：",
    ),
    "empty_model": (
        "{model} answers. Each message is stored before it is answered, and nothing is lost silently.",
        "由 {model} 回答。每条消息在回答之前就已保存，不会悄悄丢失。",
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
    "waiting": ("Waiting", "等待中"),
    "heard": ("Not addressed to the bot; sent with the next question", "未指向机器人；将随下一个提问发送"),
    "queued": ("Waiting: {n} before this one", "排队中：前面还有 {n} 条"),
    "thinking": ("Thinking", "思考"),
    "reconnecting": ("Connection lost. Reconnecting…", "连接中断，正在恢复…"),
    "failed_send": ("The message was not sent: {error}", "消息未发送：{error}"),
    "compacting": ("Compacting older messages…", "正在压缩较早的消息…"),
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
    "fork_hint": ("A new session with the same messages", "以相同的消息开始新会话"),
    "compact": ("Compact now", "立即压缩"),
    "compact_hint": ("Replace older messages by a summary", "用摘要代替较早的消息"),
    "delete": ("Delete", "删除"),
    "delete_hint": ("Goes to the trash", "移到回收站"),
    "restore": ("Restore", "恢复"),
    "erase": ("Delete for good", "永久删除"),
    "erase_sure": ("Erase this session for good? It cannot be undone.", "永久删除此会话？此操作无法撤销。"),
    "details": ("Details", "详情"),
    "details_hint": ("Timeline, tokens, and what the model saw", "时间线、词元与模型所见"),
    "continue_chat": ("Continue", "继续对话"),
    "earlier": ("Earlier messages are in the session view", "更早的消息见会话详情"),
    "compacted": ("Compacted {n} entries", "已压缩 {n} 条"),
    "compaction": ("Compaction", "压缩"),
    "tokens_change": ("{before} → {after} tokens", "{before} → {after} 词元"),
    "tokens_saved": ("{n} saved", "节省 {n}"),
    "trigger_manual": ("by hand", "手动"),
    "trigger_tokens": ("too many tokens", "词元过多"),
    "trigger_messages": ("too many messages", "消息过多"),
    "trigger_window": ("window nearly full", "窗口将满"),
    "trigger_overflow": ("did not fit", "超出窗口"),
    "trigger_rescue": ("emergency, without the model", "应急，未用模型"),
    "summary": ("Summary", "摘要"),
    "show_original": ("Show original", "显示原文"),
    "original": ("Original messages", "原始消息"),
    "undo": ("Undo", "撤销"),
    "fidelity": (
        "Identifiers: {n}; {kept} still in the prompt, {searchable} found by search, {lost} lost.",
        "标识符：{n} 个；{kept} 个仍在提示词中，{searchable} 个可搜索到，{lost} 个丢失。",
    ),
    "fidelity_price": (
        "The summary costs about {tokens} tokens in each later prompt; about {read} were read to write it.",
        "摘要在之后的每次提示词中约占 {tokens} 词元；撰写时约读取 {read} 词元。",
    ),
    "undo_label": ("Undo this compaction", "撤销此次压缩"),
    "undone": ("undone", "已撤销"),
    "under": ("compacted again later", "之后再次压缩"),
    "note_shortened": ("{n} tool results shown shortened", "{n} 个工具结果已缩短显示"),
    "note_pin": ("Pinned entry {target}", "已固定第 {target} 条"),
    "note_unpin": ("Unpinned entry {target}", "已取消固定第 {target} 条"),
    "note_rewind": ("Rewound to entry {to}", "已回退到第 {to} 条"),
    "note_undo": ("Undid entry {target}", "已撤销第 {target} 条"),
    "note_status": ("Status: {value}", "状态：{value}"),
    "note_title": ("Titled “{title}”", "标题：“{title}”"),
    "note_session": ("Session opened at {key}", "会话开始于 {key}"),
    "note_selected": ("Selected for its key", "已选为当前会话"),
    "note_unknown": (
        "An entry of the type “{type}”, which this version does not know, kept as it is",
        "类型为“{type}”的条目，此版本无法识别，原样保留",
    ),
    "note_foreign": ("An entry of another program, kept as it is", "其他程序的条目，原样保留"),
    "note_request": ("A request of {client}: {match}", "{client} 的请求：{match}"),
    "note_head": ("The client's system prompt and tools", "客户端的系统提示与工具"),
    "note_facts": ("Facts kept by {app}", "{app} 保存的数据"),
    "note_erasure": ("{entries} entries erased by {by}", "{by} 擦除了 {entries} 个条目"),
    "note_plain": ("Shown to the model as plain text up to entry {n}", "第 {n} 条及之前以纯文本形式展示给模型"),
    "note_failed": ("This turn ended without an answer", "本轮没有得到回答"),
    "forked_from": ("Forked from {id} at entry {seq}", "分叉自 {id} 的第 {seq} 条"),
    "partial": ("interrupted", "已中断"),
    "rewound": ("rewound", "已回退"),
    "left_out": ("left out: the model refused it", "已略去：模型拒绝了它"),
    "retry": ("Retry", "重试"),
    "edit": ("Edit", "编辑"),
    "edit_hint": ("Your next message replaces it", "下一条消息将替换它"),
    "discard": ("Discard", "舍弃"),
    "replacing": ("The next message replaces the one that failed.", "下一条消息将替换失败的那条。"),
    "folded": ("compacted", "已压缩"),
    "pinned": ("pinned", "已固定"),
    "newer_fields": ("has fields of a newer version", "含有更新版本的字段"),
    "long_text": ("{n} characters in all.", "共 {n} 个字符。"),
    "whole_text": ("Show the whole text", "显示全文"),
    "image": ("Image", "图片"),
    "chats_lead_read": ("The sessions of your agents, newest first.", "你可查看的智能体的会话，最新的在前。"),
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
    "messages": ("Messages", "消息"),
    "tokens": ("Tokens", "词元"),
    "last_active": ("Last active", "最近活动"),
    "total": ("{n} in all", "共 {n} 个"),
    "no_chats": ("Nothing matches these filters.", "没有符合条件的内容。"),
    "no_chats_hint": ("Remove a filter, or start a conversation in Chat.", "请减少筛选条件，或在聊天中开始对话。"),
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
    "reply_delivered": ("Delivered", "已送达"),
    "reply_state_waiting": ("Waits to be sent", "等待发送"),
    "reply_state_refused": ("Refused by the platform", "平台拒收"),
    "reply_state_expired": ("Expired, never delivered", "已过期，未送达"),
    "replies_waiting_n": ("replies waiting: {n}", "{n} 条回复等待发送"),
    "replies_refused_n": ("replies refused: {n}", "{n} 条回复被拒收"),
    "replies_expired_n": ("replies expired: {n}", "{n} 条回复已过期"),
    "reply_since": ("since", "开始于"),
    "reply_again": ("next attempt", "下次尝试"),
    "reply_attempts": ("attempts: {n}", "已尝试 {n} 次"),
    "reply_why": ("Last error: {why}", "最近一次错误：{why}"),
    "reply_words": ("The session has its text.", "内容保存在会话中。"),
    "oldest_first": ("{shown} of {n} messages", "{n} 条消息中的 {shown} 条"),
    "newer": ("Newer", "较新"),
    "session_view": ("Session", "会话详情"),
    "timeline": ("Timeline", "时间线"),
    "saw": ("What the model saw", "模型所见"),
    "saw_at": ("What the model saw at turn {n}", "第 {n} 轮时模型所见"),
    "saw_lead": (
        "Exactly the prompt that was sent, rebuilt from the log.",
        "根据记录重建，与当时发送的提示完全一致。",
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
    "error": ("That did not work", "操作未成功"),
    "no_page": ("There is no such page.", "没有这个页面。"),
    "no_page_hint": ("The address may be wrong, or the page was deleted.", "地址可能有误，或所指内容已不存在。"),
    "back": ("Back to Chat", "返回聊天"),
    "hit_of": ("in {title}", "见 {title}"),
}

TERMINAL: dict[str, tuple[str, str]] = {
    **approval.TERMINAL,
    "offline": (
        "No model is set up. The built-in offline model answers; it understands nothing.",
        "尚未设置模型，由内置离线模型回答，它并不理解内容。",
    ),
    "connect": (
        "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or use --model PROVIDER:NAME.",
        "请设置 ANTHROPIC_API_KEY 或 OPENAI_API_KEY，或使用 --model PROVIDER:NAME。",
    ),
    "reset": (
        "Session {old} has expired (session.reset = {reset}) and is kept. New session: {id}",
        "会话 {old} 已到期（session.reset = {reset}），内容保留。新会话：{id}",
    ),
    "elsewhere": ("elsewhere", "另一处"),
    "bye": ("Goodbye.", "再见。"),
    "again": ("Press Ctrl-C again to quit.", "再按一次 Ctrl-C 退出。"),
    "unknown": ("Unknown command: {name}. {hint}", "未知命令：{name}。{hint}"),
    "near": ("Did you mean /{name}?", "是否想用 /{name}？"),
    "see_help": (
        "See /help; to send a text that begins with /, put a space before it.",
        "请看 /help；要发送以 / 开头的文字，请在前面加一个空格。",
    ),
    "ambiguous_command": ("/{name} could be {matches}.", "/{name} 可能是 {matches}。"),
    "usage": ("Usage: {usage}", "用法：{usage}"),
    "switched": ("Switched to session: {name}  {n} messages", "已切换到会话：{name}  {n} 条消息"),
    "not_found": ("Session not found: {name}", "找不到会话：{name}"),
    "ambiguous": ("Ambiguous: {name} matches {n} sessions:", "不唯一：{name} 符合 {n} 个会话："),
    "no_sessions": ("No sessions found.", "没有会话。"),
    "more": ("… and {n} more; turnlog sessions list shows all", "… 还有 {n} 个；turnlog sessions list 显示全部"),
    "delete_current": ("Cannot delete the current session. Switch first.", "不能删除当前会话，请先切换。"),
    "delete_ask": ("Delete {name} with {n} messages for good?", "永久删除 {name}（{n} 条消息）？"),
    "deleted": ("Deleted: {name}", "已删除：{name}"),
    "kept": ("Nothing was deleted.", "没有删除任何内容。"),
    "renamed": ("Renamed to: {title}", "已改名为：{title}"),
    "forked": ("Forked into {id}; you are in the fork now.", "已分叉为 {id}，现在位于分叉中。"),
    "rewound": (
        "Rewound {n} turns, to entry {seq}. To return: turnlog sessions rewind {id} {back}",
        "已回退 {n} 轮，到第 {seq} 条。返回：turnlog sessions rewind {id} {back}",
    ),
    "no_turns": ("There is no turn to rewind.", "没有可回退的轮次。"),
    "pinned": ("Pinned entry {seq}: compaction keeps it verbatim.", "已固定第 {seq} 条，压缩时保留原文。"),
    "unpinned": ("Unpinned entry {seq}.", "已取消固定第 {seq} 条。"),
    "nothing_pinned": ("Nothing is pinned.", "没有固定的内容。"),
    "nothing_said": ("(no messages yet)", "（还没有消息）"),
    "no_hits": ("Nothing found for {words}.", "没有找到 {words}。"),
    "exported": ("Written: {path}", "已写入：{path}"),
    "messages_in_tail": ("Messages: {n}", "消息：{n}"),
    "next_compaction": ("Next compaction: in about {n} turns", "下次压缩：约 {n} 轮后"),
    "too_few": ("Too few messages to compact (need > 4).", "消息太少，无法压缩（需要多于 4 条）。"),
    "compacting": ("Compacting …", "正在压缩 …"),
    "compacted_now": (
        "Compacted entries {first}–{last}: ~{before:,} → ~{after:,} tokens, {n} messages before, {m} after. "
        "/expand shows them, /undo-compact undoes it.",
        "已压缩第 {first}–{last} 条：~{before:,} → ~{after:,} tokens，之前 {n} 条消息，之后 {m} 条。"
        "/expand 查看原文，/undo-compact 撤销。",
    ),
    "undone": ("Undone: the newest compaction.", "已撤销最近一次压缩。"),
    "model_now": ("Model: {model}", "模型：{model}"),
    "model_changed": ("Model is now {model}.", "模型已改为 {model}。"),
    "cost_line": (
        "{model}: {turns} answers, {input:,} in ({cached} cached), {output:,} out{cost}",
        "{model}：{turns} 次回答，输入 {input:,}（缓存 {cached}），输出 {output:,}{cost}",
    ),
    "cost_price": (", about ${usd:.4f}", "，约 ${usd:.4f}"),
    "no_usage": ("No usage was reported yet.", "尚无用量报告。"),
    "no_turn": ("No turn is running.", "没有正在进行的轮次。"),
    "stopped": ("stopped; the text so far is kept", "已停止；已有内容保留"),
    "compaction": (
        "compacted: {before:,} → {after:,} tokens (/expand, /undo-compact)",
        "已压缩：{before:,} → {after:,} tokens（/expand，/undo-compact）",
    ),
    "compaction_failed": ("compaction failed, nothing was changed: {error}", "压缩失败，没有改变任何内容：{error}"),
    "guard_shortened": ("too large: long tool results shortened", "过大：已缩短工具结果"),
    "guard_compacted": ("too large: compacted", "过大：已压缩"),
    "guard_rescued": ("too large: compacted without the model", "过大：已不经模型压缩"),
    "guard_retry": ("the model is busy; trying again", "模型繁忙，正在重试"),
    "guard_repaired": ("corrected before sending", "发送前已修正"),
    "guard_plain": ("refused again: earlier messages are sent as plain text", "再次被拒绝：之前的内容以纯文本发送"),
    "left_out": ("left out: the model refused it", "已略去：模型拒绝了它"),
    "not_counted": ("not counted in the total", "不计入总数"),
    "window_learnt": (
        "The model refused larger prompts: its window is {n:,} tokens, not {believed:,}.",
        "模型拒绝了更大的提示：窗口为 {n:,} 个词元，而非 {believed:,}。",
    ),
    "guard_damaged": ("a damaged part of the transcript was left out", "记录中有损坏之处，已略过"),
    "queued": ("waiting: a turn is running ({who})", "等待中：一轮正在进行（{who}）"),
    "queued_here": ("waiting for the running turn", "等待当前一轮结束"),
    "answering": ("answering messages that were waiting", "正在回答之前等待的消息"),
    "outcome_lines": ("{n} lines", "{n} 行"),
    "outcome_empty": ("no output", "无输出"),
    "thinking": ("thinking …", "思考中 …"),
    "working": ("working · Ctrl-C stops · Enter adds to this turn", "进行中 · Ctrl-C 停止 · Enter 追加"),
    "after_turn": ("/{name} runs after this turn.", "/{name} 将在本轮结束后执行。"),
    "error": ("Error: {error}", "错误：{error}"),
    "pasted": ("[pasted #{n}: {lines} lines]", "[粘贴 #{n}：{lines} 行]"),
    "store_made": ("There was no store at {path}. An empty one was created.", "{path} 没有存储，已新建空的。"),
    "pick": (
        "Type to search · Enter opens · Ctrl-R renames · Ctrl-D deletes · Esc leaves",
        "输入搜索 · Enter 打开 · Ctrl-R 改名 · Ctrl-D 删除 · Esc 离开",
    ),
    "pick_rename": ("New title: ", "新标题："),
    "pick_delete": ("Delete {name}? y/N ", "删除 {name}？y/N "),
    "status_context": ("ctx {share:.0%}", "上下文 {share:.0%}"),
    "status_next": ("compaction in ~{n} turns", "约 {n} 轮后压缩"),
    "status_cache": ("cache {share:.0%}", "缓存 {share:.0%}"),
    "slash_new": ("start a new session here", "新建会话"),
    "slash_sessions": ("list sessions, newest first", "列出会话，最新在前"),
    "slash_switch": (
        "go to a session by id, key or label, or the beginning of one",
        "按 id、键或标签（或其开头）切换会话",
    ),
    "slash_history": ("show the messages, with marks", "显示对话和标记"),
    "slash_context": ("show what fills the window", "上下文占用情况"),
    "slash_compact": ("replace older messages by a summary", "压缩旧内容"),
    "slash_undo_compact": ("undo the newest compaction", "撤销最近一次压缩"),
    "slash_expand": ("show the messages that a compaction replaced", "查看被压缩的原文"),
    "slash_rewind": ("go back n turns; nothing is removed", "回退 n 轮，不删除内容"),
    "slash_retry": ("send the last message again, if its turn failed", "重新发送失败的消息"),
    "slash_fork": ("continue in a copy of this session", "在副本中继续"),
    "slash_rename": ("give this session a title", "为会话命名"),
    "slash_pin": ("keep a message verbatim [your last]", "固定一条消息（默认您的上一条）"),
    "slash_unpin": ("unpin a message [the last]", "取消固定"),
    "slash_search": ("search all sessions", "搜索所有会话"),
    "slash_recall": ("search the memory", "搜索记忆"),
    "slash_export": ("write this session to a file", "导出会话"),
    "slash_delete": ("delete a session, after asking", "删除会话（会先询问）"),
    "slash_model": ("show or change the model", "查看或更换模型"),
    "slash_cost": ("show tokens and cost of this session", "本会话的用量与费用"),
    "slash_stop": ("stop the running turn (Ctrl-C)", "停止当前一轮（Ctrl-C）"),
    "slash_help": ("this list", "显示本列表"),
    "slash_quit": ("quit (also: quit, exit, Ctrl-D)", "退出（quit、exit、Ctrl-D）"),
}

CHANNEL: dict[str, tuple[str, str]] = {
    **approval.CHANNEL,
    "new": ("A new conversation has started ({id}).", "已开始新会话（{id}）。"),
    "no_sessions": ("There are no conversations here yet.", "这里还没有会话。"),
    "sessions": ("Conversations here, newest first:", "这里的会话，最新的在前："),
    "compacted": (
        "Older messages were summarised: ~{before:,} → ~{after:,} tokens.",
        "较早的消息已压缩：~{before:,} → ~{after:,} tokens。",
    ),
    "compact_failed": ("Nothing was compacted: {why}", "没有压缩：{why}"),
    "stopped": ("Stopped.", "已停止。"),
    "nothing_runs": ("Nothing is running.", "没有正在进行的回答。"),
    "status": (
        "Conversation: {id}{title}\nMessages: {messages}, about {tokens:,} tokens\nNow: {now}",
        "会话：{id}{title}\n消息：{messages} 条，约 {tokens:,} tokens\n目前：{now}",
    ),
    "idle": ("waiting for you", "等待你的消息"),
    "running": ("answering", "正在回答"),
    "waiting": ("answering; {n} messages wait", "正在回答，{n} 条消息等待中"),
    "help": (
        "/new [label]  start a new conversation\n/sessions  list the conversations here\n"
        "/compact [focus]  summarise older messages\n/stop  stop the answer\n"
        "/status  show the current state\n/help  this text\n"
        "Everything else goes to the assistant.",
        "/new [名称]  开始新会话\n/sessions  列出这里的会话\n/compact [重点]  压缩较早的内容\n"
        "/stop  停止回答\n/status  当前状态\n/help  显示此帮助\n其他内容都会发给助手。",
    ),
    "unknown": ("There is no command /{name}. /help lists them.", "没有命令 /{name}。/help 列出所有命令。"),
    "error": ("That did not work: {why}", "未能完成：{why}"),
    "busy": (
        "Too many messages are waiting. This one was not accepted; please send it again later.",
        "等待处理的消息太多，这一条未被接收，请稍后再发。",
    ),
    "failed": (
        "The assistant could not answer. Your message is kept and sent together with your next one.",
        "助手未能回答。你的消息已保留，会与下一条消息一起发送。",
    ),
    "overflow": (
        "This is too long for the model, even shortened. Please send less at once, or start a /new conversation.",
        "内容超出模型上限，缩短后仍放不下。请减少内容，或用 /new 开始新会话。",
    ),
    "interrupted": (
        "A restart interrupted the answer. Please send the message again if you still need it.",
        "回答因重启而中断。如仍需要，请重新发送。",
    ),
}

TABLE: Mapping[Part, Mapping[str, tuple[str, str]]] = {"page": PAGE, "terminal": TERMINAL, "channel": CHANNEL}


class Texts:
    """The texts of one part in one language: `texts("rename")`, `texts("total", n=3)`. Escapes nothing."""

    def __init__(self, part: Part, language: Language = "en") -> None:
        self.language: Language = language
        self._table = TABLE[part]
        self._index = LANGUAGES.index(language)

    def known(self, name: str) -> bool:
        return name in self._table

    def __call__(self, name: str, /, **values: Any) -> str:
        text = self._table[name][self._index]
        return text.format_map(values) if values else text


def words_here() -> Texts:
    """The texts of the terminal in which this process runs."""
    return Texts("terminal", of_locale(os.environ))


def of_locale(env: Mapping[str, str]) -> Language:
    locale = env.get("LC_ALL") or env.get("LC_MESSAGES") or env.get("LANG") or ""
    return "zh" if locale.lower().startswith("zh") else "en"


def of_header(chosen: str | None, accepted: str) -> Language:
    """The language that somebody chose on the page, else the first one of Accept-Language that there is."""
    liked = (part.partition(";")[0].strip().lower()[:2] for part in accepted[:ACCEPTED_MAX_CHARS].split(","))
    for name in (chosen, *liked):
        for language in LANGUAGES:
            if name == language:
                return language
    return "en"
