"""The wires of OpenAI and Anthropic in front of any model: each module only translates."""
