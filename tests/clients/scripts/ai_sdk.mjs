import { generateText, streamText, tool, stepCountIs } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenAI } from "@ai-sdk/openai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { z } from "zod";
const { U, T } = process.env;
const made = {
  messages: () => createAnthropic({ baseURL: U + "/v1", apiKey: T })("m"),
  responses: () => createOpenAI({ baseURL: U + "/v1", apiKey: T }).responses("m"),
};
const chat = () => createOpenAICompatible({ name: "tl", baseURL: U + "/v1", apiKey: T })("m");
const model = (made[process.env.WIRE] ?? chat)();
const tools = { hours: tool({ description: "Hours.", inputSchema: z.object({ day: z.string() }), execute: async () => "closed" }) };
const messages = [{ role: "user", content: "When open?" }];
const first = await generateText({ model, tools, stopWhen: stepCountIs(3), messages });
messages.push(...first.response.messages, { role: "user", content: "And again?" });
const second = streamText({ model, tools, stopWhen: stepCountIs(3), messages });
let text = "";
for await (const piece of second.textStream) text += piece;
console.log(JSON.stringify([first.text, text]));
