import { generateText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";
const { U, T, KIND, RETRIES = "2", MODEL = "m", QUESTION = "Say hi." } = process.env;
const model = KIND === "messages"
  ? createAnthropic({ baseURL: U + "/v1", apiKey: T })(MODEL)
  : createOpenAICompatible({ name: "tl", baseURL: U + "/v1", apiKey: T })(MODEL);
try {
  const { text } = await generateText({ model, prompt: QUESTION, maxRetries: Number(RETRIES) });
  console.log(JSON.stringify({ answer: text }));
} catch (error) {
  console.log(JSON.stringify({ error: `${error.name}: ${error.message}` }));
}
