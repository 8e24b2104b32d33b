"""The texts about calls that wait for a person's approval."""

REASONS: dict[str, str] = {
    "this tool asks for approval": "此工具要求批准",
    "every call waits for approval": "所有调用都需要批准",
    "it runs something": "会执行操作",
    "it changes something": "会更改内容",
}
"""Why a call waits, as the log says it → in Chinese."""

PAGE: dict[str, tuple[str, str]] = {
    "approval_asks": ("waits for your approval", "等待你的批准"),
    "approval_approve": ("Approve", "批准"),
    "approval_deny": ("Deny", "拒绝"),
    "approval_always": ("Always in this chat", "在本会话中总是批准"),
    "approval_always_means": ("“Always” allows:", "“总是批准”将允许："),
    "approval_everywhere": ("Always, everywhere", "在所有会话中总是批准"),
    "approval_edit": ("Edit the arguments", "修改参数"),
    "not_json": ("The arguments are not JSON: {error}", "参数不是有效的 JSON：{error}"),
    "approval_reason": ("Reason for a denial", "拒绝理由"),
    "approval_approved": ("approved by {by}", "{by} 已批准"),
    "approval_denied": ("denied by {by}", "{by} 已拒绝"),
    "approval_unanswered": ("denied without an answer", "未获答复，已拒绝"),
    "audit": ("Approvals", "批准记录"),
    "audit_lead": (
        "Every call that needed approval: who answered, when, and what ran.",
        "所有需要批准的调用：由谁、何时答复，以及实际执行了什么。",
    ),
    "audit_none": ("No call needed approval.", "没有需要批准的调用。"),
    "audit_when": ("Time", "时间"),
    "audit_call": ("Call", "调用"),
    "audit_who": ("Person", "人员"),
    "audit_outcome": ("Outcome", "结果"),
    "audit_waiting": ("waits", "等待中"),
    "audit_approved": ("approved", "已批准"),
    "audit_denied": ("denied", "已拒绝"),
    "audit_ran": ("ran", "已执行"),
    "audit_failed": ("ran and failed", "执行失败"),
    "audit_not_run": ("not run", "未执行"),
    "audit_changed": ("With these arguments instead:", "改用以下参数："),
    "audit_allowed": ("always:", "总是允许："),
    "audit_older": ("Look at older sessions", "查看更早的会话"),
    "files": ("Written files", "已写入的文件"),
    "files_lead": (
        "Files that tools wrote in this session. You can restore the former content of each for 30 days.",
        "工具在此会话中写入的文件。30 天内可恢复原内容。",
    ),
    "files_none": ("No written file can be restored.", "没有可恢复的文件。"),
    "file": ("File", "文件"),
    "file_what": ("Change", "改动"),
    "file_created": ("created", "新建"),
    "file_replaced": ("replaced", "替换"),
    "file_undo": ("Undo", "恢复"),
    "file_undo_force": ("Undo all the same", "仍然恢复"),
    "file_undone": ("{path} has its former content again.", "{path} 已恢复原内容。"),
    "waits_for_you": ("waits for you", "等待你处理"),
    "note_approval": ("Approval {state}: {tool}", "批准 {state}：{tool}"),
    "note_approval_answer": ("{by} {word} the call {call}", "{by} 对调用 {call} 的答复：{word}"),
}

TERMINAL: dict[str, tuple[str, str]] = {
    "approval_keys": (
        "y yes · n no · n REASON · e ARGUMENTS · a always in this chat · w always, written to config.toml",
        "y 同意 · n 拒绝 · n 理由 · e 参数 · a 本会话总是同意 · w 总是同意并写入 config.toml",
    ),
    "approval_always": ("always means: {pattern}", "“总是”指：{pattern}"),
    "approval_yes": ("approved by {by}", "{by} 已批准"),
    "approval_no": ("denied by {by}", "{by} 已拒绝"),
    "approval_none": ("denied without an answer", "未获答复，已拒绝"),
    "more_lines": ("{n} more lines", "还有 {n} 行"),
    "no_question": ("No call waits for approval.", "没有等待批准的调用。"),
    "status_approval": ("no approval asked", "不询问批准"),
    "slash_yes": (
        "approve the call that waits; always: calls like it too; everywhere: in every chat",
        "批准等待的调用；always：以后同类调用也批准；everywhere：所有会话",
    ),
    "slash_no": ("deny the call that waits", "拒绝等待的调用"),
}

CHANNEL: dict[str, tuple[str, str]] = {
    "approval_asks": ("{tool} waits for approval: {why}", "{tool} 等待批准：{why}"),
    "approval_how": ("Answer /yes or /no REASON.", "请回复 /yes 或 /no 理由。"),
    "approval_always_means": (
        "“Always in this chat” (/yes always) allows: {pattern}",
        "“在本会话中总是批准”（/yes always）将允许：{pattern}",
    ),
    "approval_yes_button": ("Approve", "批准"),
    "approval_always_button": ("Always in this chat", "在本会话中总是批准"),
    "approval_no_button": ("Deny", "拒绝"),
    "approval_given": ("Approved.", "已批准。"),
    "approval_denied": ("Denied.", "已拒绝。"),
    "approval_given_by": ("Approved by {by}.", "{by} 已批准。"),
    "approval_denied_by": ("Denied by {by}.", "{by} 已拒绝。"),
    "approval_late": ("Denied: nobody answered in time.", "已拒绝：无人及时答复。"),
    "approval_ended": ("Nobody answered; the turn has ended.", "未获答复，本轮已结束。"),
    "approval_before": ("This was answered already. {what}", "此前已有答复。{what}"),
    "approval_none": ("No call waits for approval.", "没有等待批准的调用。"),
    "approval_not_you": ("You may not approve calls here.", "你无权在此批准调用。"),
}
