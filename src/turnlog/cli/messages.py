"""What the terminal says, in English and in Chinese, by the locale. Lines that scripts depend on are not translated.

Each message is a format string; both languages name the same fields (a test compares them).
"""

import os
from collections.abc import Mapping
from typing import Any

LANGUAGES = ("en", "zh")

CATALOGUE: dict[str, tuple[str, str]] = {
    "offline": (
        "No model is set up: the offline model answers, which understands nothing.",
        "尚未设置模型，由内置离线模型回答：它并不理解内容。",
    ),
    "connect": (
        "A real one: ANTHROPIC_API_KEY, OPENAI_API_KEY or --model PROVIDER:NAME.",
        "真实模型：ANTHROPIC_API_KEY、OPENAI_API_KEY 或 --model PROVIDER:NAME。",
    ),
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
    "ambiguous": ("Ambiguous: {name} fits {n} sessions:", "不唯一：{name} 符合 {n} 个会话："),
    "no_sessions": ("No sessions found.", "没有会话。"),
    "more": ("… and {n} more; turnlog sessions list shows all", "… 还有 {n} 个；turnlog sessions list 显示全部"),
    "delete_current": ("Cannot delete the current session. Switch first.", "不能删除当前会话，请先切换。"),
    "delete_ask": ("Delete {name} with {n} messages for good?", "永久删除 {name}（{n} 条消息）？"),
    "deleted": ("Deleted: {name}", "已删除：{name}"),
    "kept": ("Nothing was deleted.", "没有删除任何内容。"),
    "renamed": ("Renamed to: {title}", "已改名为：{title}"),
    "forked": ("Forked into {id}; you are in the fork now.", "已分叉为 {id}，现在位于分叉中。"),
    "rewound": (
        "Rewound {n} turns, to entry {seq}. turnlog sessions rewind {id} {back} comes back.",
        "已回退 {n} 轮，到第 {seq} 条。turnlog sessions rewind {id} {back} 可返回。",
    ),
    "no_turns": ("There is no turn to go back over.", "没有可回退的轮次。"),
    "pinned": ("Pinned entry {seq}: it stays word for word.", "已固定第 {seq} 条，原文保留。"),
    "unpinned": ("Unpinned entry {seq}.", "已取消固定第 {seq} 条。"),
    "nothing_pinned": ("Nothing is pinned.", "没有固定的内容。"),
    "nothing_said": ("(nothing was said yet)", "（还没有消息）"),
    "no_hits": ("Nothing found for {words}.", "没有找到 {words}。"),
    "exported": ("Written: {path}", "已写入：{path}"),
    "unavailable": ("/{name} is not part of this installation.", "此安装不包含 /{name}。"),
    "messages_in_tail": ("Messages: {n}", "消息：{n}"),
    "next_compaction": ("Next compaction: in about {n} turns", "下次压缩：约 {n} 轮后"),
    "too_few": ("Too few messages to compact (need > 4).", "消息太少，无法压缩（需要多于 4 条）。"),
    "compacting": ("Compacting …", "正在压缩 …"),
    "compacted_now": (
        "Compacted entries {first}–{last}: ~{before:,} → ~{after:,} tokens, {n} messages before, {m} after. "
        "/expand shows them, /undo-compact takes it back.",
        "已压缩第 {first}–{last} 条：~{before:,} → ~{after:,} tokens，之前 {n} 条消息，之后 {m} 条。"
        "/expand 查看原文，/undo-compact 撤销。",
    ),
    "undone": ("Undone: the newest compaction no longer counts.", "已撤销最近一次压缩。"),
    "model_now": ("Model: {model}", "模型：{model}"),
    "model_changed": ("Model is now {model}.", "模型已改为 {model}。"),
    "cost_line": (
        "{model}: {turns} answers, {input:,} in ({cached} cached), {output:,} out{cost}",
        "{model}：{turns} 次回答，输入 {input:,}（缓存 {cached}），输出 {output:,}{cost}",
    ),
    "cost_price": (", about ${usd:.4f}", "，约 ${usd:.4f}"),
    "no_usage": ("No usage was reported yet.", "尚无用量报告。"),
    "no_turn": ("No turn is running.", "没有正在进行的轮次。"),
    "stopped": ("stopped; what was said is kept", "已停止；已有内容保留"),
    "compaction": (
        "compacted: {before:,} → {after:,} tokens (/expand, /undo-compact)",
        "已压缩：{before:,} → {after:,} tokens（/expand，/undo-compact）",
    ),
    "compaction_failed": ("compaction failed, nothing was changed: {error}", "压缩失败，没有改变任何内容：{error}"),
    "guard_shortened": ("too large: long tool results shortened", "过大：已缩短工具结果"),
    "guard_compacted": ("too large: compacted", "过大：已压缩"),
    "guard_rescued": ("too large: folded without the model", "过大：已不经模型折叠"),
    "guard_retry": ("the model is busy; trying again", "模型繁忙，正在重试"),
    "guard_damaged": ("a damaged place in the transcript was left out", "记录中有损坏之处，已略过"),
    "queued": ("waiting: {who} has the turn", "等待中：{who} 正在进行一轮"),
    "queued_here": ("waiting for the running turn", "等待当前一轮结束"),
    "answering": ("answering what was left waiting", "正在回答之前等待的消息"),
    "outcome_lines": ("{n} lines", "{n} 行"),
    "outcome_empty": ("no output", "无输出"),
    "thinking": ("thinking …", "思考中 …"),
    "working": ("working · Ctrl-C stops · Enter adds to this turn", "进行中 · Ctrl-C 停止 · Enter 追加"),
    "after_turn": ("/{name} runs when this turn has ended.", "/{name} 将在本轮结束后执行。"),
    "error": ("Error: {error}", "错误：{error}"),
    "pasted": ("[pasted #{n}: {lines} lines]", "[粘贴 #{n}：{lines} 行]"),
    "store_made": ("There was no store at {path}; an empty one was made.", "{path} 没有存储，已新建空的。"),
    "pick": (
        "Type to search · Enter opens · Ctrl-R renames · Ctrl-D deletes · Esc leaves",
        "输入搜索 · Enter 打开 · Ctrl-R 改名 · Ctrl-D 删除 · Esc 离开",
    ),
    "pick_rename": ("New title: ", "新标题："),
    "pick_delete": ("Delete {name}? y/N ", "删除 {name}？y/N "),
    "status_context": ("ctx {share:.0%}", "上下文 {share:.0%}"),
    "status_next": ("compaction in ~{n} turns", "约 {n} 轮后压缩"),
    "status_cache": ("cache {share:.0%}", "缓存 {share:.0%}"),
}


class Words:
    """The messages of one language: `words("deleted", name=…)`."""

    def __init__(self, language: str = "en") -> None:
        self.language = language
        self._place = LANGUAGES.index(language)

    def __call__(self, name: str, /, **fields: Any) -> str:
        return CATALOGUE[name][self._place].format(**fields)

    def choose(self, english: str, chinese: str) -> str:
        return (english, chinese)[self._place]


def language_of(env: Mapping[str, str]) -> str:
    locale = env.get("LC_ALL") or env.get("LC_MESSAGES") or env.get("LANG") or ""
    return "zh" if locale.lower().startswith("zh") else "en"


def words_here() -> Words:
    return Words(language_of(os.environ))
