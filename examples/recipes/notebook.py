"""A notebook: its event loop is running, and both ways work in it. `# %%` begins a cell."""

# %%
import turnlog

t = turnlog.connect()
chat = t.session("my notebook")
print(chat.ask("My name is Ann."))

# %%
print(chat.ask("And what is my name?"))
print(chat.messages(shape="openai")[0])

# %%
t.close()
