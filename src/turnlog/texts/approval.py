"""The texts about calls that wait for a person's word."""

PAGE: dict[str, tuple[str, str]] = {
    "approval_asks": ("waits for your approval", "等待您的批准"),
    "approval_approve": ("Approve", "批准"),
    "approval_deny": ("Deny", "拒绝"),
    "approval_always": ("Always in this chat", "本会话总是批准"),
    "approval_edit": ("Edit the arguments", "修改参数"),
    "approval_reason": ("Reason for a denial", "拒绝理由"),
    "approval_approved": ("approved by {by}", "{by} 已批准"),
    "approval_denied": ("denied by {by}", "{by} 已拒绝"),
    "waits_for_you": ("waits for you", "等待您"),
    "note_approval": ("Approval {state}: {tool}", "批准 {state}：{tool}"),
    "note_approval_answer": ("{by} {word} the call {call}", "{by} 对调用 {call} 的答复：{word}"),
}

TERMINAL: dict[str, tuple[str, str]] = {
    "approval_keys": (
        "y yes · n no · n REASON · e ARGUMENTS · a always in this chat",
        "y 同意 · n 拒绝 · n 理由 · e 参数 · a 本会话总是同意",
    ),
    "approval_always": ("always means: {pattern}", "“总是”指：{pattern}"),
    "approval_yes": ("approved by {by}", "{by} 已批准"),
    "approval_no": ("denied by {by}", "{by} 已拒绝"),
    "more_lines": ("{n} more lines", "还有 {n} 行"),
    "no_question": ("no call waits for approval", "没有等待批准的调用"),
    "status_approval": ("no approval asked", "不询问批准"),
    "slash_yes": (
        "approve the call that waits; always: calls like it too",
        "批准等待的调用；always：以后同类调用也批准",
    ),
    "slash_no": ("deny the call that waits", "拒绝等待的调用"),
}

CHANNEL: dict[str, tuple[str, str]] = {
    "approval_asks": ("{tool} waits for approval: {why}", "{tool} 等待批准：{why}"),
    "approval_how": ("Answer /yes or /no REASON.", "请回复 /yes 或 /no 理由。"),
    "approval_always_means": (
        "“Always in this chat” (/yes always) allows: {pattern}",
        "“本会话总是批准”（/yes always）将允许：{pattern}",
    ),
    "approval_yes_button": ("Approve", "批准"),
    "approval_always_button": ("Always in this chat", "本会话总是批准"),
    "approval_no_button": ("Deny", "拒绝"),
    "approval_given": ("Approved.", "已批准。"),
    "approval_denied": ("Denied.", "已拒绝。"),
    "approval_given_by": ("Approved by {by}.", "{by} 已批准。"),
    "approval_denied_by": ("Denied by {by}.", "{by} 已拒绝。"),
    "approval_late": ("Denied: nobody answered in time.", "已拒绝：无人及时答复。"),
    "approval_ended": ("It was not answered; its turn has ended.", "未获答复；该轮已结束。"),
    "approval_before": ("This was answered already. {what}", "此前已有答复。{what}"),
    "approval_none": ("No call waits for approval.", "没有等待批准的调用。"),
    "approval_not_you": ("You may not approve calls here.", "您无权在此批准调用。"),
}
