"""Why something was refused or failed, in Chinese: English text → Chinese text, with values in braces.

Errors are in English where they are raised, because programs and logs read them. Where people read them, the page and
the terminal ask `in_chinese`. Words that are not in the table, such as those of a model's provider, stay as they are.
A test checks that the code still says each of these texts, and that everything that the page itself refuses is here.
"""

import re
from functools import lru_cache
from string import Formatter

MAX_CHARS = 4_000
"""Longer texts are not Turnlog's own."""

REFUSALS: dict[str, str] = {
    # messages
    "there is nothing to send": "没有可发送的内容",
    "Give the message's text or blocks.": "请输入消息。",
    "message: it is blank": "消息是空的",
    "See /openapi.json for what is accepted.": "可用的值见 /openapi.json。",
    "{what} is larger than {limit} bytes": "{what}超过 {limit} 字节",
    "the message": "消息",
    "the context": "上下文",
    "the text": "文字",
    "the body": "请求",
    "Send less at once.": "请减少一次发送的内容。",
    "an image cannot be read": "图片无法读取",
    "{n} messages wait in this session already": "此会话中已有 {n} 条消息在等待",
    "Wait for the running turn to end.": "请等待当前一轮结束。",
    "Wait until they are answered, stop the running turn, or raise queue.cap.": (
        "请等待它们得到回答、停止当前一轮，或调高 queue.cap。"
    ),
    "a turn is running in session {session} ({holder})": "会话 {session} 正在进行一轮对话（{holder}）",
    "A turn is running in this session.": "此会话正在进行一轮对话。",
    "Wait for it to end, or stop it.": "请等待它结束，或将其停止。",
    "a turn is running or waiting in this session": "此会话有一轮对话正在进行或等待",
    "Retry when it has ended.": "请在其结束后重试。",
    "the session has changed": "会话已有变化",
    "Look at it again, and send it again.": "请重新查看后再发送。",
    "Somebody else wrote in the meantime.": "其间有其他写入。",
    "Read again and retry.": "请重新载入后再试。",
    "the server is closing": "服务器正在关闭",
    "Turnlog is closing": "Turnlog 正在关闭",
    "Turnlog was closed": "Turnlog 已关闭",
    "Send it again after the next start.": "请在下次启动后重新发送。",
    "The message is stored and answered after the next start.": "消息已保存，下次启动后会回答。",
    "Try again in a moment.": "请稍后再试。",
    "too many requests": "请求过多",
    "too many wrong tokens": "错误的令牌过多",
    "Wait as long as Retry-After says, then send more slowly.": "请稍候，然后放慢发送。",
    "the body stopped arriving": "请求未完整到达",
    "Send it again.": "请重新发送。",
    "the server has no room for another connection": "服务器无法接受更多连接",
    "too many {what} of this token at once": "此令牌同时进行的请求过多",
    "too many connections from this address": "来自此地址的连接过多",
    "Sign in, or close some of them.": "请登录，或关闭其中一些。",
    "Wait until some of them have ended.": "请等待其中一些结束。",
    "the server failed": "服务器出错",
    "This is a defect in Turnlog. Your message is stored; try again.": "这是 Turnlog 的缺陷。消息已保存，请重试。",
    # signing in, and what one may do
    "a token is needed": "需要令牌",
    "the token is not valid": "令牌无效",
    "It may be expired or revoked. Create one with turnlog token create.": (
        "它可能已过期或被撤销。可用 turnlog token create 创建新令牌。"
    ),
    "Send Authorization: Bearer TOKEN; create one with turnlog token create.": (
        "请发送 Authorization: Bearer TOKEN；可用 turnlog token create 创建令牌。"
    ),
    "this server does not have that name": "此服务器没有这个名称",
    "Use an IP address or localhost, or add the name to [server] hosts.": (
        "请使用 IP 地址或 localhost，或将名称加入 [server] hosts。"
    ),
    "the request comes from another site": "请求来自其他网站",
    "a request with a cookie must say where it comes from": "带 cookie 的请求必须说明来源",
    "Only the server's own page may do this. Programs send a bearer token and no Origin.": (
        "只有服务器自己的页面可以这样做。程序应发送令牌，不发送 Origin。"
    ),
    "this needs the scope {scopes}": "这需要权限 {scopes}",
    "Use a token that was created with it.": "请使用具有该权限的令牌。",
    "You may not see or change this.": "你无权查看或更改此内容。",
    "you may not change this session": "你无权更改此会话",
    "only an administrator may erase": "只有管理员可以抹除",
    "Use a token, or a principal, with the scope that this needs.": "请使用具有所需权限的令牌。",
    "only an administrator of all agents may allow calls everywhere": "只有所有智能体的管理员可以允许所有会话中的调用",
    "Allow it in this chat.": "请在本会话中允许。",
    # tokens
    "{name} is not a name for a token": "{name} 不能作为令牌名称",
    "Use 1 to 64 of A-Z, a-z, 0-9, '.', '_', '@' and '-'.": "请用 1 至 64 个 A-Z、a-z、0-9、“.”“_”“@”“-”。",
    "a token needs a scope": "令牌需要权限",
    "{name} is not a scope": "{name} 不是权限",
    "Give one or more of {names}.": "请至少选择一项：{names}。",
    "a token lasts 1 to {days} days": "令牌的有效期为 1 至 {days} 天",
    "Leave it empty for one without an end.": "留空则不会过期。",
    "there is no token {id}": "没有令牌 {id}",
    "turnlog token list shows their ids.": "turnlog token list 会列出编号。",
    "this is the token that you are signed in with": "这是你登录所用的令牌",
    "Sign in with another one first.": "请先用其他令牌登录。",
    "this needs a token for all agents": "这需要适用于所有智能体的令牌",
    "Use another token.": "请使用其他令牌。",
    # sessions
    "there is no session {id}": "没有会话 {id}",
    "There is no such session.": "没有这个会话。",
    "List the sessions to see which exist; a deleted session cannot be restored.": (
        "请在会话列表中查看；已彻底删除的会话无法恢复。"
    ),
    "{id} is not a session id": "{id} 不是会话编号",
    "Session ids are 1 to 64 of A-Z, a-z, 0-9, _ and -, beginning with a letter or digit.": (
        "会话编号由 1 至 64 个 A-Z、a-z、0-9、_、- 组成，以字母或数字开头。"
    ),
    "the session was deleted": "会话已被删除",
    "session {id} is in the trash": "会话 {id} 在回收站中",
    "Restore it, or start a new session.": "请恢复它，或新建会话。",
    "there is no agent {name}": "没有智能体 {name}",
    "Name an agent of the settings that your token may use.": "请选择设置中你的令牌可用的智能体。",
    "the agent {agent} does not offer the model {model}": "智能体 {agent} 不提供模型 {model}",
    "Choose one of {names}; others are added by model.choices in config.toml.": (
        "可选：{names}；其他模型可在 config.toml 的 model.choices 中添加。"
    ),
    "a title cannot be empty": "标题不能为空",
    "Use at least one visible character.": "请至少输入一个可见字符。",
    "session {id} has no entry {seq}": "会话 {id} 没有条目 {seq}",
    "It has entries 1 to {last}.": "它有条目 1 至 {last}。",
    "there is no entry {seq}": "没有条目 {seq}",
    "The session has entries 1 to {last}.": "此会话有条目 1 至 {last}。",
    "there is no turn {turn}": "没有第 {turn} 轮",
    "This session has turns {first} to {last}.": "此会话有第 {first} 至 {last} 轮。",
    "entry {seq} does not end a turn": "条目 {seq} 不是一轮的结尾",
    "Turns end at entries {seqs}.": "各轮结束于条目 {seqs}。",
    "nothing to compact": "没有可压缩的内容",
    "Continue the conversation first.": "请先继续对话。",
    "no compaction is active in this session": "此会话中没有生效的压缩",
    "There is nothing to undo.": "没有可撤销的内容。",
    "All messages are shown as they are.": "所有消息均按原样显示。",
    "entry {seq} cannot be undone": "条目 {seq} 无法撤销",
    "The newest active compaction is entry {seq}.": "最近生效的压缩是条目 {seq}。",
    "No compaction is active.": "没有生效的压缩。",
    "entry {seq} is not a compaction": "条目 {seq} 不是压缩",
    "Name the entry of a compaction.": "请指定压缩的条目。",
    "the originals are not here: the session that this one was forked from was deleted": (
        "原文不在此处：分叉来源的会话已被删除"
    ),
    "The summary and everything after it stay.": "摘要及其后的内容会保留。",
    "the summary took longer than {s} s": "摘要用时超过 {s} 秒",
    "The model's summary was not good enough to replace what it covers.": "模型的摘要不足以代替原文。",
    "{tool} cannot take these arguments: {why}": "{tool} 无法使用这些参数：{why}",
    "Correct them, or leave them out.": "请更正，或不填写参数。",
    "the summary would need {n} calls; at most {most} are made": "摘要需要调用 {n} 次；最多调用 {most} 次",
    "Nothing was changed. Try again, or name another summary_model.": (
        "未作任何更改。请重试，或指定其他 summary_model。"
    ),
    "the last turn did not fail": "最近一轮没有失败",
    "There is nothing to retry; send a message instead.": "没有可重试的内容；请发送消息。",
    "Use rewind to go back before an answered turn.": "要回到已回答的一轮之前，请使用回退。",
    "entry {seq} is not a message": "条目 {seq} 不是消息",
    "Pin a user, assistant or tool_result entry.": "请固定用户、智能体或工具结果的消息。",
    "entry {seq} {why}, so it cannot be pinned": "条目 {seq} {why}，无法固定",
    "was rewound": "已被回退",
    "is left out, because the model refused it": "因模型拒绝而不在提示中",
    "Pin a message that the model sees.": "请固定模型能看到的消息。",
    "entry {seq} is not pinned": "条目 {seq} 未被固定",
    "Name a pinned message.": "请选择已固定的消息。",
    "the pins would take about {size} tokens; the budget is {budget}": "固定的消息约需 {size} 词元；上限为 {budget}",
    "Unpin something first, or raise compaction.pin_budget.": "请先取消固定一些消息，或调高 compaction.pin_budget。",
    "more than {n} pins in one session": "一个会话中固定的消息超过 {n} 条",
    "Unpin something first.": "请先取消固定一些消息。",
    "Correct the call; nothing was changed.": "未作任何更改，请改正后再试。",
    "Correct the request.": "请改正后再试。",
    # approvals
    "no call {call} waits for an answer": "没有等待答复的调用 {call}",
    "Its turn has gone on or has ended.": "该轮已继续或已结束。",
    "the call {call} has been answered": "调用 {call} 已有答复",
    "The first answer counts.": "以第一个答复为准。",
    "the call {call} waited too long and was denied": "调用 {call} 等待过久，已被拒绝",
    "Send a message; the model can call the tool again.": "请发送消息；模型可以再次调用工具。",
    # commands
    "{text} is not a number from 1 on": "{text} 不是从 1 开始的数字",
    "Usage: {usage}": "用法：{usage}",
    # pages and forms
    "there is no such action": "没有这个操作",
    "Use the buttons of the page.": "请使用页面上的按钮。",
    "there is no such log": "没有这个记录",
    "Choose one of the list.": "请从列表中选择。",
    "this is no filter: {error}": "筛选条件无效：{error}",
    "Choose the filters on the page.": "请在页面上选择筛选条件。",
    "there is no such picture": "没有这张图片",
    "It may be at an address of its own, or erased.": "它可能另有地址，或已被抹除。",
    "there is no such format": "没有这种格式",
    "Use one of {names}.": "可用：{names}。",
    "there is no such file": "没有这个文件",
    "The page names the files that it has.": "页面上有可用的文件。",
    "those are not ids of sessions": "这些不是会话编号",
    "Separate them by commas.": "请用逗号分隔。",
    "choose 1 to {most} sessions, not {n}": "请选择 1 至 {most} 个会话（现为 {n} 个）",
    "Tick the boxes of the table.": "请勾选表格中的复选框。",
    "{cursor} is not a cursor of this list": "{cursor} 不是此列表的位置",
    "Pass `next` of the previous page unchanged, with the same order.": "请返回列表的第一页。",
    "a search has at most {n} characters": "搜索内容最多 {n} 个字符",
    "Search for fewer words.": "请减少关键词。",
    "there is no word to search for": "没有可搜索的词",
    "Give at least one letter, digit or character.": "请至少输入一个字母、数字或汉字。",
    "{field}:{value} is not a date": "{field}:{value} 不是日期",
    "Write {field}:2026-11-16, in UTC.": "请写成 {field}:2026-11-16（UTC）。",
    "Write {field}:2026-11-16 or {again}:2026-11-16T09:30, in UTC.": (
        "请写成 {field}:2026-11-16 或 {again}:2026-11-16T09:30（UTC）。"
    ),
    # importing, erasing, files
    "no file was chosen": "未选择文件",
    "Choose a file with conversations.": "请选择含有对话的文件。",
    "this is a database": "这是数据库",
    "Use turnlog sessions import FILE on the machine that has it.": (
        "请在该文件所在的机器上使用 turnlog sessions import FILE。"
    ),
    "{path} is empty": "{path} 是空的",
    "{path} is not a transcript of a known kind": "{path} 不是已知类型的对话文件",
    "Name a file or a directory that one of the known programs wrote.": "请选择由已知程序写出的文件。",
    "{path} is not a JSON document": "{path} 不是 JSON 文件",
    "Name an export or a list of messages.": "请选择导出文件或消息列表。",
    "{text} is not the number of an entry": "{text} 不是条目编号",
    "Write numbers, such as 3, 5-8.": "请输入编号，例如 3, 5-8。",
    "more than {n} entries": "超过 {n} 个条目",
    "Erase them in several steps.": "请分几次抹除。",
    "say what to erase: entries or a text": "请说明要抹除的内容：条目或文字",
    "Use either seqs (--seq) or text (--text).": "请填写条目（--seq）或文字（--text）之一。",
    "the text has fewer than {n} characters": "文字少于 {n} 个字符",
    "Give a longer part of it.": "请输入更长的内容。",
    "data derived from the entries still counts": "由这些条目得出的数据仍然有效",
    "Ask for redaction (redact, --redact) too.": "请同时选择涂改（redact、--redact）。",
    "no former content is kept for this": "没有保存其原内容",
    "See `turnlog files list`.": "请查看 turnlog files list。",
    "{path} has changed since the tool wrote it": "工具写入之后，{path} 已有更改",
    "Use --force to replace it all the same.": "如仍要替换，请使用 --force。",
    # models and stores
    "the turn was cut short": "该轮中途中断",
    "stopped before an answer": "在得到回答之前已停止",
    "the model's answer was incomplete": "模型的回答不完整",
    "the model returned nothing": "模型没有返回内容",
    "the model returned nothing{why}": "模型没有返回内容{why}",
    "Try again, or rephrase the message.": "请重试，或换一种说法。",
    "the model called tools for more than {n} rounds and never answered": "模型连续调用工具超过 {n} 轮，始终没有回答",
    "Ask for a smaller task.": "请缩小任务。",
    "the answer was cut short: {error}": "回答中途中断：{error}",
    "Send a message to continue.": "请发送消息以继续。",
    "The model's provider failed.": "模型提供方出错。",
    "Try again; your message is stored.": "消息已保存，请重试。",
    "The model's provider is overloaded or limits the rate.": "模型提供方过载或限制了请求频率。",
    "The model's provider refused the request.": "模型提供方拒绝了请求。",
    "Check the model's name, the key and the settings.": "请检查模型名称、密钥与设置。",
    "The model refused the content.": "模型拒绝了此内容。",
    "It is left out of the prompt from now on. Retry it, rephrase it, or continue without it.": (
        "此后模型不会看到它。可以重试、改写，或不带它继续。"
    ),
    "there is no API key: {name} is not set": "没有 API 密钥：未设置 {name}",
    "Set {name}, or give api_key.": "请设置 {name}，或提供 api_key。",
    "the connection to the provider failed: {error}": "与模型提供方的连接失败：{error}",
    "the request could not be made: {error}": "无法发出请求：{error}",
    "the provider's answer ended before it was complete": "模型提供方的回答在完成之前结束",
    "The prompt does not fit the model's window, even after shortening, compaction and rescue.": (
        "即使经过缩短、压缩和补救，内容仍超出模型窗口。"
    ),
    "Send a shorter message, unpin something, or use a model with a larger window.": (
        "请发送较短的消息、取消固定一些消息，或使用窗口更大的模型。"
    ),
    "The turn used all its rounds of tool calls and gave no answer.": "该轮用尽了工具调用的轮数，没有给出回答。",
    "The turn was stopped before its answer was complete.": "该轮在回答完成之前被停止。",
    "Its text so far is stored. Send another message to continue.": "已有的文字已保存。请发送消息以继续。",
    "The store failed.": "存储出错。",
    "Check the disk or the database, then try again.": "请检查磁盘或数据库，然后重试。",
    "The store cannot be written or reached; nothing was changed.": "存储无法写入或访问；未作任何更改。",
    "Check disk space, permissions and the store's address, then retry.": "请检查磁盘空间、权限与存储地址，然后重试。",
    "the store does not answer": "存储没有响应",
    "Try again when the store works.": "请在存储恢复后重试。",
    "A stored entry is damaged.": "一个已保存的条目已损坏。",
    "Nothing was overwritten. The entries before and after it are readable; restore the line from a backup.": (
        "没有内容被覆盖。其前后的条目可以读取；请从备份恢复该行。"
    ),
}


def in_chinese(text: str) -> str:
    """The text as it is, if it is not in the table."""
    if text in REFUSALS:
        return REFUSALS[text]
    for pattern, chinese in _patterns() if len(text) <= MAX_CHARS else ():
        if found := pattern.fullmatch(text):
            return chinese.format_map({name: REFUSALS.get(value, value) for name, value in found.groupdict().items()})
    return text


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Those with values, the most particular ones first: `{what} is larger than …` would take any words."""
    told = [(english, chinese) for english, chinese in REFUSALS.items() if "{" in english]
    told.sort(key=lambda pair: len(re.sub(r"\{\w+\}", "", pair[0])), reverse=True)
    return [(_pattern(english), chinese) for english, chinese in told]


def _pattern(english: str) -> re.Pattern[str]:
    parts = [
        re.escape(words) + (f"(?P<{name}>.+?)" if name else "") for words, name, _, _ in Formatter().parse(english)
    ]
    return re.compile("".join(parts), re.DOTALL)
