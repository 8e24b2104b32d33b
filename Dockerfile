FROM python:3.13-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir '.[server,postgres,anthropic,openai,html]' && useradd --create-home turnlog
USER turnlog
EXPOSE 8600
CMD ["turnlog", "serve"]
