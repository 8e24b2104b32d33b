"""The texts of the chat on the page: what was done, actions of messages, search, composer, keys."""

PAGE: dict[str, tuple[str, str]] = {
    "unreachable": ("The server cannot be reached. Nothing was changed.", "无法连接服务器，未作任何更改。"),
    "notifications": ("Notifications", "通知"),
    "did_rename": ("Renamed", "已改名"),
    "did_fork": ("This is the fork", "已进入分叉"),
    "did_compact": ("Older messages were compacted", "较早的消息已压缩"),
    "did_undo": ("The compaction was undone", "压缩已撤销"),
    "did_trash": ("Moved to the trash", "已移到回收站"),
    "did_restore": ("Restored", "已恢复"),
    "did_erase": ("Deleted for good", "已永久删除"),
    "did_retry": ("Sent again", "已重新发送"),
    "did_discard": ("Discarded", "已舍弃"),
}
