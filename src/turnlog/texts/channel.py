"""The texts that channels send: name → (English, Chinese)."""

from . import approval

CHANNEL: dict[str, tuple[str, str]] = {
    **approval.CHANNEL,
    "new": ("A new conversation has started ({id}).", "已开始新会话（{id}）。"),
    "no_sessions": ("There are no conversations here yet.", "这里还没有会话。"),
    "sessions": ("Conversations here, newest first:", "这里的会话，最新的在前："),
    "compacted": (
        "Older messages were summarised: ~{before:,} → ~{after:,} tokens.",
        "较早的消息已压缩：~{before:,} → ~{after:,} 词元。",
    ),
    "compact_failed": ("Nothing was compacted: {why}", "未压缩：{why}"),
    "stopped": ("Stopped.", "已停止。"),
    "nothing_runs": ("Nothing is running.", "没有正在进行的回答。"),
    "status": (
        "Conversation: {id}{title}\nMessages: {messages}, about {tokens:,} tokens\nNow: {now}",
        "会话：{id}{title}\n消息：{messages} 条，约 {tokens:,} 词元\n目前：{now}",
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
        "等待处理的消息太多，这条消息未被接收，请稍后再发。",
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
