"""The names of spans, attributes and metrics: those of OpenTelemetry's conventions for generative AI, and some of ours.

The conventions are in development; this module is the only place to change when they do. They have no span for a
compaction yet, so its names are ours, except for the flag that later calls carry.
"""

CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"
COMPACT = "compact"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
COMPACTED = "gen_ai.conversation.compacted"
AGENT = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - a name
ERROR_TYPE = "error.type"

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
"""Contents: recorded only if the settings say so."""

TURN_SEQ = "turnlog.turn.seq"
TURN_OUTCOME = "turnlog.turn.outcome"
CALL_PURPOSE = "turnlog.call.purpose"
COMPACTION_TRIGGER = "turnlog.compaction.trigger"
TOKENS_BEFORE = "turnlog.compaction.tokens_before"
TOKENS_AFTER = "turnlog.compaction.tokens_after"

TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - a name
CALL_DURATION = "gen_ai.client.operation.duration"
CALL_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TURN_DURATION = "gen_ai.invoke_agent.duration"
TOOL_DURATION = "gen_ai.execute_tool.duration"
COMPACTION_DURATION = "turnlog.compaction.duration"

TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
SECOND_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
